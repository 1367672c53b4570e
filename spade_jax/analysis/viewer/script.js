"use strict";
// Everything is made of elements and text nodes: no string becomes markup.

const SVG = "http://www.w3.org/2000/svg";
const main = document.querySelector("main");
let data, packedEpisodes; // the latter by run and environment

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "text", "line", "rect", "title"].includes(tag);
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const shown = (value, digits = 2) => value === null || value === undefined ? "–" : value.toFixed(digits);
const last = () => Math.max(1, ...data.runs.flatMap((run) => run.metrics.map((row) => row.iteration)));

// The part of the address behind #: a view and what it is set to.
function place() {
  const [view, query] = location.hash.slice(1).split("?");
  return { view: view || "curves", values: new URLSearchParams(query) };
}

const address = (view, values) => "#" + view + "?" + new URLSearchParams(values);

// ---- curves

const WIDTH = 420, HEIGHT = 190, LEFT = 44, BOTTOM = 22, TOP = 8;

function series(names) {
  const found = [];
  data.runs.forEach((run, index) => {
    const all = names.flatMap((name) => name.endsWith("/")
      ? [...new Set(run.metrics.flatMap(Object.keys))].filter((key) => key.startsWith(name)).sort()
      : [name]);
    all.forEach((name, place) => {
      const points = run.metrics.filter((row) => Number.isFinite(row[name])).map((row) => [row.iteration, row[name], row]);
      if (!points.length) return;
      const several = data.runs.length > 1;
      found.push({ name, points, label: (several ? run.name + " " : "") + name.slice(name.indexOf("/") + 1).replace("_tokens_per_second", ""),
        colour: `var(--c${(several ? index : place) % 8})`, dash: several ? ["", "6 3", "2 3", "8 3 2 3"][place % 4] : "" });
    });
  });
  return found;
}

// The next 1, 2, 2.5, 5 or 10 times a power of ten.
function round(size) {
  const power = 10 ** Math.floor(Math.log10(size));
  return power * [1, 2, 2.5, 5, 10].find((digit) => digit * power >= size * (1 - 1e-9));
}

function frame(title, low, high, step) {
  const x = (iteration) => LEFT + (WIDTH - LEFT - 8) * iteration / last();
  const y = (value) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value - low) / (high - low);
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
  for (let value = low; value <= high + step / 2; value += step) {
    svg.append(make("line", { class: "axis", x1: LEFT, x2: WIDTH - 8, y1: y(value), y2: y(value) }));
    const label = Math.abs(value) >= 1e5 || (Math.abs(value) > step / 2 && Math.abs(value) < 0.01) ? value.toExponential(1) : String(Math.abs(value) > step / 2 ? +value.toPrecision(3) : 0);
    svg.append(make("text", { x: LEFT - 4, y: y(value) + 4, "text-anchor": "end" }, label));
  }
  for (const at of [0, last()])
    svg.append(make("text", { x: x(at), y: HEIGHT - 6, "text-anchor": at ? "end" : "middle" }, String(at)));
  svg.append(make("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "iteration"));
  return { svg, x, y };
}

function chart([title, meaning, names]) {
  const lines = series(names);
  if (!lines.length) return null;
  const error = (name, row) => name === "regret/mean" && row["regret/error"] || 0;
  const values = lines.flatMap(({ name, points }) => points.flatMap(([, value, row]) => [value - error(name, row), value + error(name, row)]));
  const lowest = Math.min(0, ...values), highest = Math.max(0, ...values);
  const step = round(Math.max(highest, -lowest) / 2 || 0.5);
  const low = Math.floor(lowest / step + 1e-9) * step, high = Math.ceil(highest / step - 1e-9) * step;
  const { svg, x, y } = frame(title, low, high, step);
  for (const { name, points, label, colour, dash } of lines) {
    if (name === "regret/mean") {
      const band = points.filter((point) => Number.isFinite(point[2]["regret/error"]));
      const edge = (sign) => band.map(([at, value, row]) => `${x(at)},${y(value + sign * error(name, row))}`);
      if (band.length) svg.append(make("path", { d: `M${edge(1).join("L")}L${edge(-1).reverse().join("L")}Z`, fill: colour, opacity: 0.18 }));
    }
    const d = "M" + points.map(([at, value]) => `${x(at)},${y(value)}`).join("L");
    svg.append(make("path", { d, fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash }, make("title", {}, label)));
    if (points.length < 60) for (const [at, value] of points)
      svg.append(make("rect", { x: x(at) - 2, y: y(value) - 2, width: 4, height: 4, fill: colour }, make("title", {}, `${label}, iteration ${at}: ${shown(value, 4)}`)));
  }
  return make("section", {}, make("h2", {}, title), make("p", { class: "dim" }, meaning), svg, legend(lines));
}

function legend(lines) {
  return make("div", { class: "legend" }, ...lines.map(({ label, colour, dash }) => make("span", {},
    make("svg", { class: "key", viewBox: "0 0 24 6", "aria-hidden": "true" },
      make("line", { x1: 0, x2: 24, y1: 3, y2: 3, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash })), label)));
}

// Environments by win rate, an iteration a column: dark where many are.
function distribution(run) {
  const columns = Object.entries(run.wins).map(([iteration, counts]) => [Number(iteration), counts]);
  if (!columns.length) return null;
  const { svg, y } = frame("Win rates", 0, 1, 0.5);
  const step = (WIDTH - LEFT - 8) / (last() + 1);
  for (const [iteration, counts] of columns) {
    const all = counts.reduce((sum, count) => sum + count, 0);
    counts.forEach((count, bin) => count && svg.append(make("rect", {
      x: LEFT + iteration * step, y: y((bin + 1) / counts.length), width: step > 4 ? step - 1 : step, height: y(0) - y(1 / counts.length) - 1,
      fill: "var(--c0)", opacity: 0.15 + 0.85 * count / all,
    }, make("title", {}, `iteration ${iteration}, ${bin / counts.length} to ${(bin + 1) / counts.length}: ${count} of ${all}`))));
  }
  return make("section", {}, make("h2", {}, "Win rates" + (data.runs.length > 1 ? `, ${run.name}` : "")),
    make("p", { class: "dim" }, "environments by plain win rate in an iteration"), svg);
}

function curves() {
  const charts = data.charts.map(chart).filter(Boolean);
  charts.splice(2, 0, ...data.runs.map(distribution).filter(Boolean));
  return [make("h1", {}, data.runs.map((run) => `${run.name}: ${run.metrics.length} iterations`).join(", ")), make("div", { class: "charts" }, ...charts)];
}

// ---- environments

const ROWS = 200; // of the table at first: with thousands every key in a filter would take long

const columns = () => [
  ["name", "environment"], ...(data.runs.length > 1 ? [["run", "run"]] : []), ["skill", "skill"], ["written", "iteration"],
  ["win_rate", "win rate"], ["regret", "regret"], ["reward", "designer reward"],
];
const numeric = (column) => !["name", "run", "skill"].includes(column);

function everything() {
  return data.runs.flatMap((run, index) => run.environments.map((environment) => ({ ...environment, run: index })));
}

function matches(environment, values) {
  const text = (values.get("text") || "").toLowerCase();
  const within = (key, low, high) => (values.get(low) || values.get(high)) ? environment[key] !== null
    && environment[key] >= (values.get(low) || -Infinity) && environment[key] <= (values.get(high) || Infinity) : true;
  return (!values.get("skill") || environment.skill === values.get("skill"))
    && (!values.get("run") || environment.run === Number(values.get("run")))
    && within("win_rate", "win_low", "win_high") && within("regret", "regret_low", "regret_high") && within("written", "from", "to")
    && (!text || [environment.name, environment.source, environment.hint].some((part) => part.toLowerCase().includes(text)));
}

function table(values) {
  const sort = values.get("sort") || "written", down = values.get("down") === "1";
  const rows = everything().filter((environment) => matches(environment, values));
  const absent = (value) => value === null || value === undefined;
  rows.sort((a, b) => absent(a[sort]) || absent(b[sort]) ? absent(a[sort]) - absent(b[sort])
    : (a[sort] < b[sort] ? -1 : a[sort] > b[sort] ? 1 : 0) * (down ? -1 : 1));
  const heads = columns().map(([key, label]) => make("th", {
    class: numeric(key) ? "number" : key, scope: "col", "aria-sort": key === sort ? (down ? "descending" : "ascending") : null,
  }, make("button", { type: "button", id: "sort-" + key, onclick: () => set({ sort: key, down: key === sort && !down ? "1" : "" }, "sort-" + key) },
    label + (key === sort ? (down ? " ↓" : " ↑") : ""))));
  const first = values.get("all") ? rows : rows.slice(0, ROWS);
  const cut = first.length < rows.length;
  return [make("p", { class: "dim", role: "status" }, `${rows.length} of ${everything().length} environments${cut ? `, the first ${ROWS} shown` : ""}`),
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...first.map((row) => make("tr", {},
      ...columns().map(([key]) => make("td", { class: numeric(key) ? "number" : key }, cell(key, row))))))),
    ...(cut ? [make("button", { type: "button", onclick: () => set({ all: "1" }) }, `show all ${rows.length}`)] : [])];
}

function cell(key, row) {
  if (key === "name") return link(row.run, row);
  if (key === "run") return data.runs[row.run].name;
  return key === "skill" ? row.skill : shown(row[key], key === "written" ? 0 : 2);
}

// Takes over a change of the view's settings; the element to have the focus is made anew with the table.
function set(changes, focus) {
  const { view, values } = place();
  for (const [key, value] of Object.entries(changes)) value ? values.set(key, value) : values.delete(key);
  history.replaceState(null, "", address(view, values));
  document.getElementById("rows").replaceChildren(...table(values));
  if (focus) document.getElementById(focus).focus();
}

function environments(values) {
  const skills = [...new Set(everything().map((environment) => environment.skill))].sort();
  const field = (name, label, type) => make("label", {}, label, make("input", { name, type, step: "any", value: values.get(name), oninput: (event) => set({ [name]: event.target.value }) }));
  const choice = (name, label, options) => make("label", {}, label, make("select", { name, onchange: (event) => set({ [name]: event.target.value }) },
    make("option", { value: "" }, "all"), ...options.map(([value, text]) => make("option", { value, selected: values.get(name) === value && "" }, text))));
  const form = make("form", { onsubmit: (event) => event.preventDefault() },
    data.runs.length > 1 ? choice("run", "run", data.runs.map((run, index) => [String(index), run.name])) : null,
    choice("skill", "skill", skills.map((skill) => [skill, skill])), field("text", "contains", "search"),
    field("from", "iteration from", "number"), field("to", "to", "number"), field("win_low", "win rate from", "number"), field("win_high", "to", "number"),
    field("regret_low", "regret from", "number"), field("regret_high", "to", "number"));
  const sum = (count) => everything().reduce((total, item) => total + count(item), 0);
  const held = sum((item) => item.episodes), played = sum((item) => Object.values(item.played).reduce((total, count) => total + count, 0));
  const fewer = everything().some((item) => item.episodes < Object.values(item.played).reduce((total, count) => total + Math.min(count, data.most), 0));
  const told = `This page holds ${held} of ${played} episodes, the first ${data.most} of each arm${fewer ? " or fewer, more of environments written last" : ""}; texts have ${data.longest} characters at most. All is in the run directory.`;
  return [make("h1", {}, "Environments"), make("p", { class: "dim" }, told), form, make("div", { id: "rows" }, ...table(values))];
}

const link = (run, environment) => make("a", { href: address("environment", { run, name: environment.name }) }, environment.name);

// ---- one environment

const PYTHON = new RegExp([
  /(?<comment>#[^\n]*)/, /(?<string>[rbfRBF]{0,2}(?:"""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))/,
  /(?<keyword>\b(?:and|as|assert|break|class|continue|def|del|elif|else|except|False|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield)\b)/,
  /(?<digits>\b\d[\w.]*)/].map((part) => part.source).join("|"), "g");

function code(source) {
  const block = make("pre", { tabindex: 0 });
  let end = 0;
  for (const match of source.matchAll(PYTHON)) {
    const kind = Object.entries(match.groups).find(([, text]) => text !== undefined)[0];
    block.append(source.slice(end, match.index), make("span", { class: kind }, match[0]));
    end = match.index + match[0].length;
  }
  block.append(source.slice(end));
  return block;
}

function episode(item) {
  const won = item.return >= 1 - 1e-6;
  return make("section", {}, make("h2", { class: won ? "won" : "lost" }, `return ${shown(item.return)}`),
    make("p", { class: "dim" }, `iteration ${item.iteration}, seed ${item.seed}, ${item.status}`), make("pre", {}, item.first),
    ...item.turns.flatMap(([reply, observation, reward]) => [make("pre", { class: "reply" }, reply), make("pre", {}, observation + (reward ? `\n(reward ${shown(reward)})` : ""))]));
}

function environment(values) {
  const index = Number(values.get("run") || 0), run = data.runs[index];
  const item = run && run.environments.find((each) => each.name === values.get("name"));
  if (!item) return [make("p", {}, "There is no such environment.")];
  const list = (all) => all.length ? all.flatMap((each, place) => [place ? ", " : "", link(index, each)]) : ["none"];
  const parents = run.environments.filter((each) => item.exemplars.includes(each.sha));
  const children = run.environments.filter((each) => each.exemplars.includes(item.sha));
  const arms = make("div", { class: "arms" });
  fill(arms, item, packedEpisodes[index][run.environments.indexOf(item)]);
  return [make("h1", {}, item.name),
    make("p", {}, `${item.skill}, written in iteration ${item.written}. Win rate ${shown(item.win_rate)}, regret ${shown(item.regret)} ± ${shown(item.regret_error)}, designer reward ${shown(item.reward)}.`),
    make("p", {}, "Document: ", item.document ? item.document.title || item.document.id : "none", "."),
    make("p", {}, "Shown when it was written: ", ...list(parents), ". Shown when these were written: ", ...list(children), "."),
    make("h2", {}, "Hint"), make("pre", {}, item.hint || "none"), make("h2", {}, "Source"), code(item.source),
    make("details", {}, make("summary", {}, `${item.checks.length} checks, ${item.checks.filter((check) => check.status === "passed").length} passed`), make("table", {}, make("tbody", {}, ...item.checks.map((check) => make("tr", {}, make("td", {}, check.name), make("td", {}, check.status), make("td", {}, check.reason)))))),
    arms];
}

async function fill(arms, item, packed) {
  const episodes = packed ? await unpack(packed) : [];
  arms.replaceChildren(...["plain", "hinted", "placebo"].filter((arm) => arm !== "placebo" || item.played[arm]).map((arm) => {
    const all = episodes.filter((each) => each.arm === arm);
    return make("section", {}, make("h1", {}, `${arm}: ${all.length} of ${item.played[arm] || 0} episodes`), ...all.map(episode));
  }));
}

// Highlighted when it is first unfolded: a run has thousands of them.
function folded(title, source) {
  const unfold = (event) => event.target.children.length < 2 && event.target.append(code(source));
  return make("details", { ontoggle: unfold }, make("summary", {}, title));
}

function refused(values) {
  const name = (run) => data.runs.length > 1 ? `${run.name}, ` : "";
  const all = data.runs.flatMap((run) => run.refused.map((item) => ({ ...item, run: name(run) })));
  const reasons = [...new Set(all.map((item) => item.outcome))].sort();
  const wanted = all.filter((item) => !values.get("outcome") || item.outcome === values.get("outcome"));
  return [make("h1", {}, `${wanted.length} refused programs`),
    make("p", {}, ...["", ...reasons].flatMap((reason) => [make("a", { href: address("refused", reason ? { outcome: reason } : {}) }, reason || "all"), " "])),
    ...wanted.map((item) => folded(`${item.run}iteration ${item.iteration}, ${item.skill}: ${item.outcome}${item.reason ? ", " + item.reason : ""}`, item.source))];
}

// ---- the page

const VIEWS = { curves, environments, environment, refused };

function show() {
  const { view, values } = place();
  const render = Object.hasOwn(VIEWS, view) ? VIEWS[view] : curves;
  main.replaceChildren(...render(values).filter(Boolean));
  document.querySelector("nav").replaceChildren(...["curves", "environments", "refused"].map((name) =>
    make("a", { href: "#" + name, "aria-current": name === view ? "page" : null }, name)));
  document.title = `${data.runs.map((run) => run.name).join(", ")}: ${view}`;
  main.dataset.view = view;
}

async function unpack(packed) {
  const letters = atob(packed), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

async function load() {
  const content = (id) => JSON.parse(document.getElementById(id).textContent);
  packedEpisodes = content("episodes");
  data = await unpack(content("data"));
  addEventListener("hashchange", () => { show(); main.focus(); scrollTo(0, 0); });
  show();
  // Not under the hands of somebody who is filling in a filter.
  if (data.reload) setInterval(() => document.querySelector("input:focus, select:focus") || location.reload(), 1000 * data.reload);
}

load();

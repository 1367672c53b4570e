"""The page: every view opens, filters filter, texts stay texts.

The page's script runs in V8 on a small document (``document.js``); in Chromium, the slow way, the
same is asked of the real one.
"""

import base64
import gzip
import html
import json
import pathlib
import re
import shutil

import long_run
import made_run
import py_mini_racer
import pytest
from playwright import sync_api

from spade_jax import report
from spade_jax.analysis import page, run

BROWSER = next(
    filter(None, map(shutil.which, ["chromium-headless-shell", "chromium", "google-chrome"])), None
)
DOCUMENT = pathlib.Path(__file__).with_name("document.js").read_text()
VIEWS = [
    ("", "made: 2 iterations"), ("constructor", "made: 2 iterations"),
    ("environments", "00000_002_third"), ("refused", made_run.HOSTILE),
    ("environment?run=0&name=00000_000_first", made_run.HOSTILE),
]  # fmt: skip
FILTERS = [
    ("skill=Optimization&sort=win_rate&down=1", [2, 0]), ("win_low=0.1&win_high=0.6", [0, 1]),
    ("text=THIRD", [2]), ("sort=regret&from=0", [1, 0, 2]),
]  # fmt: skip
NAMES = [f"00000_{index:03d}_{name}" for index, name in enumerate(made_run.RETURNS)]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    made_run.write(folder / "made")
    report.main([f"--workdir={folder / 'made'}", f"--out={folder / 'page.html'}"])
    return folder / "page.html"


def unpacked(packed):
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def data_of(text):
    return unpacked(re.search(r'id="data">"([^"]*)"<', text)[1])


def episodes_of(text):
    """Of each run's environments, as the page has them."""
    runs = json.loads(re.search(r'id="episodes">(.*?)</script>', text)[1])
    return [[unpacked(each) if each else [] for each in packed] for packed in runs]


def shown(path, view, then=""):
    """The markup of the document's body once the page's own script has shown a view, and then
    done what is asked of it."""
    text = path.read_text()
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1].replace("\nload();", "\n")
    engine = py_mini_racer.MiniRacer()
    engine.eval(DOCUMENT)
    engine.eval(f"location.hash = {json.dumps('#' + view)}")
    engine.eval(script)
    engine.eval("unpack = async (packed) => packed")  # this V8 has no gzip
    engine.eval(f"packedEpisodes = {json.dumps(episodes_of(text))}")
    engine.eval(f"data = {json.dumps(data_of(text))}; show(); {then}")
    return engine.eval("document.body.markup()")


@pytest.mark.parametrize(("view", "wanted"), VIEWS)
def test_every_view_opens_and_texts_stay_texts(built, view, wanted):
    body = shown(built, view)
    main = body.partition("<main")[2].partition("</main>")[0]
    assert wanted in html.unescape(re.sub(r"</?span[^>]*>", "", main))
    assert "<img" not in main
    assert "<script" not in main


def test_an_environment_tells_how_many_of_its_episodes_are_shown(built):
    body = shown(built, "environment?run=0&name=00000_001_second")
    assert "plain: 8 of 8 episodes" in body
    assert "hinted: 4 of 4 episodes" in body
    assert body.count("terminated</p>") == 12


@pytest.mark.parametrize(("query", "wanted"), FILTERS)
def test_filters_and_order(built, query, wanted):
    body = shown(built, f"environments?{query}")
    assert re.findall(r">(00000_[^<]*)</a>", body) == [NAMES[index] for index in wanted]
    assert f"{len(wanted)} of 3 environments" in body


def test_a_long_table_is_cut_until_all_is_asked_for(tmp_path):
    long_run.write(tmp_path, iterations=1, slots=210, plays=0)
    path = tmp_path / "page.html"
    report.write([tmp_path], path)
    body = shown(path, "environments?sort=name&down=1")
    names = re.findall(r">(00000_[^<]*)</a>", body)
    assert names == [f"00000_{index:03d}_some_game" for index in range(209, 9, -1)]
    assert "210 of 210 environments, the first 200 shown" in body
    click = """
      body.find((element) => element.tag === "button" && element.markup().includes("show all 210"))
        .listeners.click();"""
    body = shown(path, "environments", click)
    assert len(re.findall(r">(00000_[^<]*)</a>", body)) == 210
    assert "show all" not in body


def test_a_refused_program_is_there_once_it_is_unfolded(built):
    unfold = """
      const one = body.find((element) => element.tag === "details");
      one.listeners.toggle({ target: one });"""
    assert "<pre" not in shown(built, "refused")
    body = shown(built, "refused", unfold + unfold.splitlines()[-1])  # and twice is once
    assert body.count("<pre") == 1
    program = body.partition("<pre")[2]
    assert made_run.HOSTILE in html.unescape(re.sub(r"</?span[^>]*>", "", program))
    assert "<img" not in program


@pytest.fixture(scope="module")
def chromium():
    assert BROWSER, "this test needs Chromium: apt install chromium-headless-shell"
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def tab(chromium, request):
    """In a light and in a dark scheme; whatever the page complains of fails the test."""
    tab = chromium.new_page(color_scheme=request.param)
    complaints = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    yield tab
    tab.close()
    assert complaints == []


def opened(tab, path, view):
    """The document as the browser has it once the view is shown."""
    tab.goto(f"file://{path}#{view}")
    tab.wait_for_selector("main h1")
    if view.startswith("environment?"):
        tab.wait_for_selector(".arms h1")
    return tab.content()


@pytest.mark.slow
@pytest.mark.parametrize(("view", "wanted"), VIEWS)
def test_every_view_opens_in_chromium(built, tab, view, wanted):
    dom = opened(tab, built, view)
    main = dom.partition("<main")[2].partition("</main>")[0]
    assert wanted in html.unescape(re.sub(r"</?span[^>]*>", "", main))
    assert "<img" not in main
    assert "<script" not in main
    assert '<html lang="en">' in dom  # nothing has marked it
    assert dom.count("<script") == 3


@pytest.mark.slow
@pytest.mark.parametrize(("query", "wanted"), FILTERS)
def test_filters_and_order_in_chromium(built, tab, query, wanted):
    dom = opened(tab, built, f"environments?{query}")
    assert re.findall(r">(00000_[^<]*)</a>", dom) == [NAMES[index] for index in wanted]
    assert f"{len(wanted)} of 3 environments" in dom


FOCUSED = """() => {
  const element = document.activeElement;
  return element.labels?.[0]?.firstChild.data ?? element.textContent;
}"""


def tab_to(tab, text):
    """Goes on by the key alone until the element of this text or label has the focus."""
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate(FOCUSED) == text:
            return
    raise AssertionError(f"no key leads to {text}")


def rows(tab):
    return [NAMES.index(each) for each in tab.locator("tbody a").all_inner_texts()]


@pytest.mark.slow
def test_the_keyboard_is_enough(built, tab):
    opened(tab, built, "")
    tab_to(tab, "environments")
    tab.keyboard.press("Enter")
    tab_to(tab, "win rate")
    tab.keyboard.press("Enter")
    assert rows(tab) == [1, 0, 2]
    tab.keyboard.press("Enter")  # the heading has kept the focus
    assert rows(tab) == [2, 0, 1]
    tab_to(tab, NAMES[2])
    tab.keyboard.press("Enter")
    tab.wait_for_selector(f"main h1:text-is('{NAMES[2]}')")
    tab.go_back()
    tab.wait_for_selector("form")
    assert rows(tab) == [2, 0, 1]
    tab_to(tab, "contains")
    tab.keyboard.type("second")
    assert rows(tab) == [1]
    tab_to(tab, "refused")
    tab.keyboard.press("Enter")
    tab_to(tab, tab.locator("summary").inner_text())
    tab.keyboard.press("Enter")
    tab.locator("details pre").wait_for(state="visible")


CONTRASTS = pathlib.Path(__file__).with_name("contrasts.js").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("view", [view for view, _ in VIEWS])
def test_all_text_can_be_read(built, tab, view):
    """A contrast of 4.5 at least: WCAG 2.2, success criterion 1.4.3."""
    opened(tab, built, view)
    contrasts = tab.evaluate(CONTRASTS)
    assert len(contrasts) > 5
    assert [each for each in contrasts if each[0] < 4.5] == []


@pytest.mark.slow
@pytest.mark.parametrize("view", [view for view, _ in VIEWS])
def test_a_narrow_window_need_not_be_moved_sideways(built, tab, view):
    tab.set_viewport_size({"width": 400, "height": 800})
    opened(tab, built, view)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_policy_lets_only_our_script_run(built):
    text = built.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert text.count("<script") == 3
    assert made_run.HOSTILE[:20] not in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_several_runs_share_a_page(tmp_path):
    for name in ("one", "two"):
        made_run.write(tmp_path / name)
    data = data_of(page.build([tmp_path / "one", tmp_path / "two"]))
    assert [each["name"] for each in data["runs"]] == ["one", "two"]


def test_a_role_that_had_nothing_to_train_on_has_no_point(built):
    rows = data_of(built.read_text())["runs"][0]["metrics"]
    assert ["grad_norm/designer" in row for row in rows] == [False, True]
    assert [row["share/learnable"] for row in rows] == pytest.approx([1 / 3, 1 / 3])


def counts(text):
    """Episodes of each environment: in the page, and said to be in it."""
    held = [len(each) for each in episodes_of(text)[0]]
    assert [each["episodes"] for each in data_of(text)["runs"][0]["environments"]] == held
    return held


def test_a_role_without_advantages_has_no_point():
    row = {"designer/trained": 1, "trained_tokens/designer": 0, "entropy/designer": 0.0}
    page._prepare(row)
    assert "entropy/designer" not in row


def test_a_long_run_says_that_it_shows_fewer(tmp_path, monkeypatch):
    long_run.write(tmp_path, iterations=8, slots=2, plays=9)
    path = tmp_path / "page.html"
    report.write([tmp_path], path)
    assert "holds 64 of 72 episodes, the first 8 of each arm; texts" in shown(path, "environments")
    monkeypatch.setattr(page, "LARGEST", path.stat().st_size - 1)
    monkeypatch.setattr(page, "ROOM", 0)
    report.write([tmp_path], path)
    told = "holds 56 of 72 episodes, the first 8 of each arm or fewer, more of environments written"
    assert told in shown(path, "environments")


def test_episodes_give_way_to_the_limit_those_written_first_before_others(tmp_path, monkeypatch):
    long_run.write(tmp_path, iterations=8, slots=3, plays=8)
    whole = page.build([tmp_path])
    assert counts(whole) == [16] * 6
    size = len(whole.encode())
    seen = []
    for share in (0.9, 0.7, 0.5, 0.3):
        monkeypatch.setattr(page, "LARGEST", int(share * size))
        monkeypatch.setattr(page, "ROOM", int(share * size) // 3)
        text = page.build([tmp_path])
        assert 0.8 * share * size < len(text.encode()) <= share * size
        held = counts(text)
        # The later half was written later: it has as many or the next more.
        assert min(held[3:]) >= max(held[:3])
        assert max(held) <= 2 * max(1, min(held)) or min(held) == 0
        seen.append(sum(held))
    assert sorted(seen, reverse=True) == seen
    assert seen[-1] < seen[0] < 96


def test_long_texts_give_way_before_the_last_episode(tmp_path, monkeypatch):
    assert page.LARGEST == 15e6  # docs/report.md
    long_run.write(tmp_path, iterations=4, slots=3, plays=1)
    assert data_of(page.build([tmp_path]))["longest"] == 20_000
    whole = len(page.build([tmp_path]).encode())
    monkeypatch.setattr(page, "LARGEST", int(0.95 * whole))
    monkeypatch.setattr(page, "ROOM", int(0.4 * whole))
    text = page.build([tmp_path])
    assert data_of(text)["longest"] == 1_000
    assert len(text.encode()) <= page.LARGEST
    assert counts(text) == [2, 2, 2]
    monkeypatch.setattr(page, "LARGEST", 20_000)
    with pytest.raises(run.NoRunError, match="name fewer runs"):
        page.build([tmp_path])


@pytest.mark.slow
def test_a_long_run_fits(tmp_path):
    """400 iterations of 12 slots: the limit is kept and used, and all have an episode an arm."""
    long_run.write(tmp_path)
    text = page.build([tmp_path])
    assert 0.95 * 15e6 < len(text.encode()) < 15e6
    assert min(counts(text)) >= 2


def test_watching_writes_again_until_the_run_is_done(tmp_path, monkeypatch, capsys):
    made_run.write(tmp_path, iterations=1)
    reloads = []

    def sleep(seconds):
        reloads.append((seconds, data_of((tmp_path / "report.html").read_text())["reload"]))
        shutil.rmtree(tmp_path / "manifest")
        (tmp_path / "metrics.jsonl").unlink()
        made_run.write(tmp_path)

    monkeypatch.setattr(report.time, "sleep", sleep)
    report.main([f"--workdir={tmp_path}", "--watch=7"])
    assert reloads == [(7, 7)]
    done = data_of((tmp_path / "report.html").read_text())
    assert done["reload"] == 0
    assert len(done["runs"][0]["metrics"]) == 2


def test_a_wrong_directory_is_one_line(tmp_path):
    with pytest.raises(SystemExit, match=r"NoRunError: .* holds no metrics"):
        report.main([f"--workdir={tmp_path}"])

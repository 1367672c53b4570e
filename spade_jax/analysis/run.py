"""A run directory as one JSON-able dictionary: what the report shows."""

import collections
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spade_jax.analysis import diversity
from spade_jax.selfplay import manifest, rewards
from spade_jax.selfplay.ledger import Ledger, Play

ALIKE = 0.9  # similarity from which two programs in a row are one written twice
BINS = 10  # of the win-rate distribution, each including its lower end, the last also 1


class NoRunError(Exception):
    """The directory holds no run; the message says what is missing."""


def read(workdir: Path, episodes: int, longest: int) -> dict[str, Any]:
    """Everything the report shows of one run.

    Args:
      episodes: at most so many episodes of an environment in each arm; of every arm the first.
      longest: characters of a text, past which it is cut and says so.

    Raises:
      NoRunError: there is no ``metrics.jsonl``.
    """
    plays = manifest.read(workdir, "plays").to_pylist()
    environments = _environments(workdir, plays, episodes, longest)
    variety = _variety(environments)
    return {
        "name": workdir.name,
        "metrics": [row | variety.get(row["iteration"], {}) for row in _metrics(workdir)],
        "wins": win_rate_bins(plays),
        "environments": environments,
        "refused": _refused(workdir, longest),
    }


def win_rate_bins(plays: list[dict[str, Any]]) -> dict[int, list[int]]:
    """Iteration -> number of environments by plain win rate in that iteration, in ``BINS`` bins.

    Returns below 0 count as 0 (win rates are means of returns, which may be negative).
    """
    returns: dict[tuple[int, str], list[float]] = collections.defaultdict(list)
    for play in plays:
        if play["arm"] == "plain" and play["return"] is not None:
            returns[play["iteration"], play["sha"]].append(play["return"])
    bins: dict[int, list[int]] = collections.defaultdict(lambda: [0] * BINS)
    for (iteration, _), values in sorted(returns.items()):
        rate = min(max(statistics.fmean(values), 0.0), 1.0)
        bins[iteration][min(int(rate * BINS), BINS - 1)] += 1
    return dict(bins)


def _environments(
    workdir: Path, plays: list[dict[str, Any]], episodes: int, longest: int
) -> list[dict[str, Any]]:
    ledger = Ledger(
        Play(play["sha"], play["iteration"], play["arm"], play["seed"], play["return"])
        for play in plays
        if play["return"] is not None
    )
    played = collections.defaultdict(list)
    for play in plays:
        played[play["sha"]].append(play)
    paid = {row["sha"]: row for row in manifest.read(workdir, "designers").to_pylist()}
    rows = []
    for environment in manifest.read(workdir, "environments").to_pylist():
        sha, name = environment["sha"], environment["name"]
        folder = workdir / "environments" / name
        facts = _json(folder / "environment.json", {})
        first = environment["written"]
        arms = [ledger.seed_means(sha, arm, first) for arm in ("plain", "hinted")]
        returns = ledger.returns(sha)
        rows.append(
            {
                "name": name,
                "sha": sha,
                "skill": environment["skill"],
                "written": first,
                "document": facts.get("document"),
                "exemplars": environment["exemplars"],
                "hint": environment["hint"] or "",
                "source": _cut(_text(folder / "source.py"), longest),
                "checks": _json(folder / "checks.json", []),
                "win_rate": statistics.fmean(returns) if returns else None,
                "regret": rewards.regret(*arms),
                "regret_error": rewards.regret_error(*arms),
                "reward": paid.get(sha, {}).get("reward"),
                "played": dict(collections.Counter(play["arm"] for play in played[sha])),
                "episodes": read_episodes(workdir, name, played[sha], episodes, longest),
            }
        )
    return rows


def _variety(environments: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Iteration -> how different its programs are, over their number; where it wrote several."""
    written = collections.defaultdict(list)
    for environment in environments:
        written[environment["written"]].append(environment["source"])
    result = {}
    for iteration, sources in written.items():
        if len(sources) < 2:
            continue
        kernel = diversity.kernel(sources)
        result[iteration] = {
            "variety/vendi": diversity.vendi(kernel) / len(sources),
            "variety/repetition": diversity.longest_repetition(kernel, ALIKE) / len(sources),
        }
    return result


def _first_of_each_arm(episodes: Iterable[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The first ``count`` of each arm."""
    seen: collections.Counter[str] = collections.Counter()
    found = []
    for episode in episodes:
        if seen[episode["arm"]] < count:
            seen[episode["arm"]] += 1
            found.append(episode)
    return found


def read_episodes(
    workdir: Path, name: str, plays: Iterable[dict[str, Any]], count: int, longest: int
) -> list[dict[str, Any]]:
    """The first ``count`` of an environment's ``plays`` in each arm, turn by turn."""
    found = []
    ordered = sorted(plays, key=lambda play: (play["iteration"], play["play"]))
    for play in _first_of_each_arm(ordered, count):
        file = f"{name}_{play['arm']}_{play['play']:03d}.json"
        episode = _json(workdir / "episodes" / f"{play['iteration']:05d}" / file, None)
        if episode is None:
            continue
        turns = [
            [_cut(turn["reply"], longest), _cut(turn["observation"], longest), turn["reward"]]
            for turn in episode["turns"]
        ]
        found.append(
            {key: episode[key] for key in ("iteration", "arm", "seed", "status", "return")}
            | {"first": _cut(episode["first_observation"], longest), "turns": turns}
        )
    return found


def _refused(workdir: Path, longest: int) -> list[dict[str, Any]]:
    """Every refused program: where, why, and what it was."""
    rows = []
    for path in sorted((workdir / "rejections").glob("*.json")):
        facts = _json(path, {})
        kept = {key: facts.get(key) for key in ("iteration", "skill", "outcome", "reason")}
        rows.append({**kept, "source": _cut(facts.get("source") or facts["reply"], longest)})
    return rows


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n… {len(text) - longest} more characters"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _json(path: Path, missing: Any) -> Any:
    text = _text(path)
    return json.loads(text) if text else missing


def finished(workdir: Path) -> bool:
    """Has the run done all the iterations that its ``config.json`` asks for?"""
    wanted = _json(workdir / "config.json", {}).get("iterations", 0)
    return len(_metrics(workdir)) >= wanted


def _metrics(workdir: Path) -> list[dict[str, Any]]:
    path = workdir / "metrics.jsonl"
    if not path.exists():
        raise NoRunError(
            f"{workdir} holds no metrics.jsonl: name the --workdir of a run that has finished its "
            "first iteration"
        )
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_row(line) for line in lines if line.endswith("}")]


def _row(line: str) -> dict[str, Any]:
    """Without what is no number: it cannot be drawn."""
    row = json.loads(line, parse_constant=lambda name: None)
    return {name: value for name, value in row.items() if value is not None}

"""The closing summary of a run, and the verdict whether it did what a run must do."""

import collections
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spade_jax.progress import duration
from spade_jax.selfplay.ledger import Ledger
from spade_jax.selfplay.state import Environment

PHASES = ("design", "hint", "play", "learn", "weights")
LATEST = 8
"""Environments in :func:`latest`."""


class RunFailed(Exception):
    """The run ended but shows no self-play worth the name; the message says what to look at."""


def check(rows: Sequence[Mapping[str, Any]], workdir: Path) -> None:
    """Raises :class:`RunFailed` if too few environments were accepted or no play was undecided."""
    asked = _total(rows, "environments/asked")
    accepted = _total(rows, "environments/accepted")
    if 2 * accepted < asked:
        raise RunFailed(
            f"only {accepted} of {asked} slots held an accepted environment, all iterations "
            "together; "
            f"{workdir / 'rejections'} has every refused program and its reason"
        )
    if not any(row["environments/mixed"] for row in rows):
        raise RunFailed(
            "no environment had plain returns that differ, so nothing could be learned from play; "
            f"look at {workdir / 'episodes'}: are they all won, all lost, or all cut short?"
        )


def line(row: Mapping[str, Any]) -> str:
    """One iteration in one line."""
    parts = [f"{row['environments/accepted']}/{row['environments/asked']} environments"]
    parts += [
        f"{label} {row[name]:.2f}"
        for label, name in (
            ("plain", "returns/plain"),
            ("hinted", "returns/hinted"),
            ("regret", "regret/mean"),
            ("designer reward", "designer/reward"),
        )
        if name in row
    ]
    parts.append(f"trained {row['agent/trained']} + {row['designer/trained']}")
    return ", ".join(parts)


def warnings(row: Mapping[str, Any]) -> list[str]:
    """What in one iteration somebody should look at, a line each (docs/troubleshooting.md)."""
    found = []
    if empty := row["environments/asked"] - row["environments/accepted"]:
        found.append(f"{empty} of {row['environments/asked']} slots hold no environment")
    elif not row["environments/mixed"]:
        found.append("no environment had plain returns that differ: play taught nothing")
    if dropped := sum(row.get(f"episodes/{arm}_dropped", 0) for arm in ("plain", "hinted")):
        found.append(f"{dropped} episodes dropped")
    if faults := row.get("sampler/faults", 0):
        found.append(f"{faults:.0f} faults of SGLang servers")
    return [f"iteration {row['iteration']}: {each}" for each in found]


def latest(environments: Sequence[Environment], ledger: Ledger) -> Table:
    """The last environments of the set in play, with the mean returns of their plays so far."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(
        f"environment ({len(environments)} in play)", no_wrap=True, overflow="ellipsis"
    )
    table.add_column("skill", no_wrap=True, overflow="ellipsis")
    for name in ("win rate", "hinted", "plays"):
        table.add_column(name, justify="right")
    for environment in environments[-LATEST:]:
        returns = {arm: ledger.returns(environment.sha, arm) for arm in ("plain", "hinted")}
        means = [f"{statistics.fmean(each):.2f}" if each else "–" for each in returns.values()]
        plays = str(len(returns["plain"]))
        table.add_row(Text(environment.name), Text(environment.skill), *means, plays)
    return table


def show(rows: Sequence[Mapping[str, Any]], workdir: Path, console: Console) -> None:
    """Prints what happened in ``rows``, one metrics row an iteration."""
    designed = [row for row in rows if "designer/attempts" in row]
    table = Table(title=f"{len(rows)} iterations", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    refused: collections.Counter[str] = collections.Counter()
    for row in designed:
        for name, count in row.items():
            if name.startswith("refused/"):
                refused[name.removeprefix("refused/")] += count
    if designed:
        table.add_row("environments asked for", str(_total(designed, "designer/slots")))
        table.add_row("programs written", str(_total(designed, "designer/attempts")))
        table.add_row("accepted", str(_total(designed, "designer/accepted")))
        reasons = ", ".join(f"{reason} {count}" for reason, count in refused.most_common())
        table.add_row("refused", f"{refused.total()}" + (f" ({reasons})" if reasons else ""))
    if passes := max((row.get("pool/passes", 0) for row in rows), default=0):
        table.add_row("passes over the pool begun", str(passes))
    for arm in ("plain", "hinted"):
        count = _total(rows, f"episodes/{arm}")
        table.add_row(f"{arm} return", f"{_mean(rows, f'returns/{arm}')} over {count} episodes")
    table.add_row("dropped episodes", str(_total(rows, "episodes/plain_dropped")))
    table.add_row("regret (hinted − plain)", _mean(rows, "regret/mean"))
    table.add_row("designer reward", _mean(rows, "designer/reward"))
    for role in ("agent", "designer"):
        trained = [row for row in rows if row[f"{role}/trained"]]
        table.add_row(
            f"{role} gradient norm",
            f"{_mean(trained, f'grad_norm/{role}')} in {len(trained)} updates, "
            f"{_total(rows, f'{role}/trained')} trajectories",
        )
    if scored := [row for row in rows if row.get("trained_tokens/agent")]:
        largest = max(row["logp_gap/agent/max"] for row in scored)
        mean = statistics.fmean(row["logp_gap/agent/mean"] for row in scored)
        table.add_row("log-prob gap to the sampler", f"mean {mean:.1e}, max {largest:.1e} (agent)")
    for phase in PHASES:
        seconds = sum(row.get(f"time/{phase}", 0.0) for row in rows)
        tokens = _total(rows, f"tokens/{phase}")
        speed = f", {tokens / seconds:,.0f} tokens/s" if tokens and seconds else ""
        table.add_row(f"time in {phase}", duration(seconds) + speed)
    for name, place in (
        ("metrics", "metrics.jsonl"),
        ("environments", "environments/"),
        ("episodes", "episodes/"),
        ("rejections", "rejections/"),
        ("checkpoints", "checkpoints/"),
    ):
        table.add_row(name, str(workdir / place))
    console.print(table)


def _total(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(row.get(name, 0) for row in rows)


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if name in row]
    if not values:
        return "–"
    trend = f" (first {values[0]:.3f}, last {values[-1]:.3f})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3f}{trend}"

"""How many environments of a pool are broken, and in which way.

    python -m spade_jax.audit runs/first/environments
    python -m spade_jax.audit 'pool/*.parquet' --limit=500 --json=audit.json

POOL is what :func:`spade_jax.environments.pools.read` takes: a folder of Python files, or a data
set whose rows have the program in ``code``, as the published pools have. Every program goes through
the checks of ``spade_jax/environments/validation.py`` in the sandbox. Rows that hold no program, or
not the one of their checksum, are counted and named. Programs for tools are counted and left out:
the checks are for games.
"""

import argparse
import asyncio
import collections
import dataclasses
import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scipy.stats
from rich.console import Console
from rich.table import Table

from spade_jax import config
from spade_jax.data import rows
from spade_jax.environments import checks, pools, similarity, validation
from spade_jax.progress import RunProgress
from spade_jax.sandbox import placement
from spade_jax.sandbox.faults import EnvironmentFault, HostFault, NoHost
from spade_jax.sandbox.interface import Host
from spade_jax.sandbox.limits import InsufficientTierError

TOOLS_BASE = re.compile(r"\b(ToolUseBaseEnv|ToolEnv)\b")
"""The base class of the published pools, and ours."""
NAMES = {
    "presolved": "won at reset",
    "not_trivial": "won by random play",
    "solvable": "unsolvable",
    "deterministic": "not deterministic",
    "duplicate": "near-duplicate",
}
"""What a failure is called; that of any other check is 'fails NAME'. ``presolved``: an empty first
message wins. ``not_trivial`` covers constant play too. ``solvable``: the environment's own solution
does not win. ``duplicate``: of one that stands earlier in the pool."""


@dataclasses.dataclass(frozen=True)
class Rate:
    """``failed`` of ``asked`` environments; ``unproven`` others offered no way to tell.

    Attributes:
      low, high: 95 % Wilson interval of the rate.
    """

    failure: str
    failed: int
    asked: int
    unproven: int
    low: float
    high: float


async def presolved(host: Host, source: str, settings: config.Validation) -> bool:
    """Whether on some seed the first message, an empty one, wins."""
    try:
        handle = await host.open(source, config.Agent().max_turns)
        try:
            for seed in range(settings.seeds):
                await host.reset(handle, seed)
                result = await host.step(handle, "")
                if result.terminated and result.reward >= checks.SOLVED:
                    return True
        finally:
            await host.close(handle)
    except EnvironmentFault:
        pass
    return False


async def examine(
    programs: Sequence[pools.Program],
    settings: config.Validation,
    sandbox: config.Sandbox,
    jobs: int,
    progress: RunProgress,
) -> list[dict[str, str] | None]:
    """For each program failure name -> status; None where the sandbox failed.

    Statuses are those of ``validation.Check``. Duplicates are sought among all ``programs``.
    """
    free = asyncio.Semaphore(jobs)
    doubles = similarity.duplicates([item.source for item in programs], settings.similarity)

    async def one(host: Host, program: pools.Program, double: int | None) -> Any:
        async with free:
            try:
                report = await validation.validate(host, program.source, settings)
                won = await presolved(host, program.source, settings)
            except HostFault:
                return None
            finally:
                progress.advance()
        found = {check.name: str(check.status) for check in report.checks if check.name != "novel"}
        found["presolved"] = "failed" if won else "passed"
        return found | {"duplicate": "passed" if double is None else "failed"}

    async with placement.environment_host(sandbox) as host:
        progress.phase("audit", len(programs))
        tasks = [one(host, *pair) for pair in zip(programs, doubles, strict=True)]
        return await asyncio.gather(*tasks)


def rates(outcomes: Sequence[dict[str, str]]) -> list[Rate]:
    """The rate of every failure, the most frequent first."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in outcomes:
        for name, status in outcome.items():
            counts[name][status] += 1
    found = []
    for name, statuses in counts.items():
        failed, asked = statuses["failed"], statuses["failed"] + statuses["passed"]
        low, high = 0.0, 1.0
        if asked:
            low, high = scipy.stats.binomtest(failed, asked).proportion_ci(method="wilson")
        failure = NAMES.get(name, f"fails {name}")
        found.append(Rate(failure, failed, asked, statuses["unproven"], float(low), float(high)))
    return sorted(found, key=lambda rate: -rate.failed / max(rate.asked, 1))


def show(found: Sequence[Rate], console: Console) -> None:
    table = Table(title="Failures", title_justify="left")
    table.add_column("failure", no_wrap=True)
    for heading in ("failed", "of", "rate", "95 % interval", "unproven"):
        table.add_column(heading, justify="right", no_wrap=True)
    for rate in found:
        share = f"{rate.failed / rate.asked:.1%}" if rate.asked else "–"
        interval = f"{rate.low:.1%}–{rate.high:.1%}" if rate.asked else "–"
        counts = (str(rate.failed), str(rate.asked), share, interval, str(rate.unproven))
        table.add_row(rate.failure, *counts)
    console.print(table)


def audit(chosen: argparse.Namespace, console: Console) -> None:
    pool = pools.read(chosen.pool)
    games = [program for program in pool.programs if not TOOLS_BASE.search(program.source)]
    programs = games
    if chosen.limit and chosen.limit < len(games):
        programs = random.Random(chosen.seed).sample(games, chosen.limit)
    tools = len(pool.programs) - len(games)
    console.print(f"{len(pool.programs)} programs, {tools} of them for tools (left out)")
    if pool.bad_rows:
        console.print(pools.told(pool.bad_rows), markup=False, highlight=False)
    sandbox = config.Sandbox(minimum_tier=chosen.minimum_tier, fleet=chosen.fleet)
    with RunProgress("audit", 1, console=console) as progress:
        examined = asyncio.run(
            examine(programs, config.Validation(), sandbox, chosen.jobs, progress)
        )
    outcomes = [outcome for outcome in examined if outcome is not None]
    found = rates(outcomes)
    console.print(
        f"{len(outcomes)} examined, {len(examined) - len(outcomes)} not, for faults of the sandbox"
    )
    show(found, console)
    if chosen.json:
        by_name = {item.name: it for item, it in zip(programs, examined, strict=True)}
        facts = {"rates": [dataclasses.asdict(rate) for rate in found], "programs": by_name}
        chosen.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pool")
    parser.add_argument("--limit", type=int, default=0, help="audit a sample of so many")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--jobs", type=int, default=16, help="programs examined at once")
    parser.add_argument("--json", type=Path, help="write rates and every outcome to this file")
    parser.add_argument("--minimum_tier", type=int, default=config.Sandbox().minimum_tier)
    parser.add_argument("--fleet", default="", help="as config.sandbox.fleet; '' = this machine")
    console = Console()
    try:
        audit(parser.parse_args(), console)
    except (rows.SourceError, config.ConfigError, InsufficientTierError, NoHost) as error:
        console.print(f"{type(error).__name__}: {error}", markup=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Does self-play teach both roles? The laptop's run with three seeds, and with learning rate 0.

    python tests/perf/self_play.py --workdir runs/study --json self_play.json
    python tests/perf/self_play.py --config configs/laptop.py:tools --iterations 40 \\
        --workdir runs/tools-study --json self_play_tools.json

One taught model starts every run. Its own environments, written before any of the runs and of all
skills, are the probe: each run's last policy plays them without hints, on the same seeds. About 25
minutes on 2 cores, of which the lesson takes 4 where it is not cached; the same command continues.
"""

import argparse
import asyncio
import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from flax import nnx

from spade_jax import config, export, policy
from spade_jax.sampling.native.sampler import NativeSampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.sampling.waves import Waves
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay.agent import Episode
from spade_jax.selfplay.setting import setting_of
from spade_jax.selfplay.state import Environment, Sample

SEEDS = (0, 1, 2)
PROBE_SEED = 1000
PLAYS = 16
AT_ONCE = 2


async def train(config_file: str, workdir: pathlib.Path, *flags: str) -> None:
    """One run, to its end, unless it has ended before."""
    workdir.parent.mkdir(parents=True, exist_ok=True)
    with (workdir.parent / f"{workdir.name}.log").open("a") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "spade_jax.train", f"--config={config_file}"),
            *(f"--workdir={workdir}", *(f"--config.{flag}" for flag in flags)),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        if await process.wait():
            raise SystemExit(f"{workdir}: the run failed; see {log.name}")


def probe(workdir: pathlib.Path) -> list[Environment]:
    """The environments that a run wrote, with nothing in them but what playing needs."""
    found = []
    for folder in sorted((workdir / "environments").iterdir()):
        about = json.loads((folder / "environment.json").read_text())
        source = (folder / "source.py").read_text()
        found.append(
            Environment(about["sha"], folder.name, about["skill"], about["slot"], about["written"],
                        source, document="", exemplars=[], sample=Sample([], [], []))
        )  # fmt: skip
    return found


async def played(model: Any, tokenizer: Any, settings: config.Config,
                 environments: Sequence[Environment]) -> float:  # fmt: skip
    """Mean return over ``PLAYS`` plain episodes of each environment; faults are left out."""
    sampler = Waves(NativeSampler(model, settings.sampler, PROBE_SEED))
    episodes = [
        Episode(environment, 0, "plain", PROBE_SEED + play, play)
        for environment in environments
        for play in range(PLAYS)
    ]
    async with EnvironmentHost(settings.sandbox) as host:
        agent = setting_of(settings).agent(
            sampler, host, Renderer(tokenizer), settings.agent, settings.designer.prompts
        )
        for start in range(0, len(episodes), settings.sandbox.instances):
            lot = episodes[start : start + settings.sandbox.instances]
            await asyncio.gather(*(agent.play(episode) for episode in lot))
    return statistics.fmean(item.episode_return for item in episodes if item.scored)


def probe_return(workdir: pathlib.Path, environments: Sequence[Environment], last: bool) -> float:
    """What the first or the last policy of a run gets on the probe."""
    settings = config.from_config_dict(json.loads((workdir / "config.json").read_text()))
    model, tokenizer = policy.load(settings, workdir)
    if last:
        _, params, tokenizer = export.of_run(workdir, None)
        nnx.update(model, params)
    return asyncio.run(played(model, tokenizer, settings, environments))


def rows(workdir: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def mean(table: Sequence[dict[str, Any]], name: str) -> float:
    values = [row[name] for row in table if row.get(name) is not None]
    return statistics.fmean(values) if values else float("nan")


def summary(workdir: pathlib.Path, environments: Sequence[Environment]) -> dict[str, float]:
    """Figures of one run; 'late' is its last third."""
    table = rows(workdir)
    late = table[-len(table) // 3 :]
    totals = {
        name: sum(row.get(name, 0) for row in table)
        for name in ("designer/slots", "designer/attempts", "designer/accepted")
    }
    names = ("returns/plain", "returns/hinted", "regret/mean", "regret/error", "designer/reward",
             "grad_norm/agent", "grad_norm/designer")  # fmt: skip
    return {
        **totals,
        "validity": totals["designer/accepted"] / totals["designer/attempts"],
        **{name: mean(table, name) for name in names},
        "late/designer/reward": mean(late, "designer/reward"),
        "late/regret/mean": mean(late, "regret/mean"),
        "probe/first": probe_return(workdir, environments, last=False),
        "probe/last": probe_return(workdir, environments, last=True),
    }


async def runs(config_file: str, root: pathlib.Path, iterations: int) -> dict[str, pathlib.Path]:
    """The taught model and the probe first, then every run, ``AT_ONCE`` at a time."""
    await train(config_file, root / "probe", "iterations=4", "learner.learning_rate=0.0")
    taught = root / "probe" / policy.INITIAL
    free = asyncio.Semaphore(AT_ONCE)
    paths = {}

    async def one(name: str, *flags: str) -> None:
        paths[name] = root / name
        async with free:
            await train(
                config_file,
                root / name,
                *(f"iterations={iterations}", f"model.source={taught}"),
                *("warm_start.enabled=False", *flags),
            )

    await asyncio.gather(
        *(one(f"trained_{seed}", f"seed={seed}") for seed in SEEDS),
        *(one(f"frozen_{seed}", f"seed={seed}", "learner.learning_rate=0.0") for seed in SEEDS),
    )
    return paths


def tell(table: Any, file: pathlib.Path | None) -> None:
    """Prints it as JSON, and writes it if there is a file for it."""
    text = json.dumps(table, indent=1)
    print(text)
    if file:
        file.write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--config", default="configs/laptop.py", help="of one process, with a lesson"
    )
    parser.add_argument("--workdir", type=pathlib.Path, required=True)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    paths = asyncio.run(runs(arguments.config, arguments.workdir, arguments.iterations))
    environments = probe(arguments.workdir / "probe")
    table = {name: summary(path, environments) for name, path in sorted(paths.items())}
    tell(table, arguments.json)


if __name__ == "__main__":
    main()

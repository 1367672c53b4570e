"""Is the full method better than its baselines? The laptop's, from one taught model, three seeds.

    python tests/perf/baselines.py --workdir runs/baselines --json baselines.json

All runs have the same learner and play as many episodes (hinted ones count). Then the taught model
and every run's last policy play without hints

* ``held_out``: games of families that nobody trained on, each with situations of several others,
  and of levels that no lesson has: they forgive 2, 3 or 4 wrong reactions, or need 4 right ones;
* ``probe``: what the taught designer had written before any of the runs;

and answer ``reasoning_gym``: those of the benchmark's tasks whose questions fit the model's
context. About half an hour on 2 cores, and five minutes where the lesson is not cached; the same
command continues.
"""

import argparse
import asyncio
import dataclasses
import hashlib
import json
import pathlib
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import self_play
from flax import nnx
from rich.console import Console

from spade_jax import config, evaluation, policy, sweep
from spade_jax.benchmarks import reasoning_gym
from spade_jax.benchmarks.policy import SamplerPolicy
from spade_jax.benchmarks.reasoning_gym_tasks import TASKS
from spade_jax.progress import RunProgress
from spade_jax.sampling.rendering import Renderer
from spade_jax.selfplay.state import Environment, Sample
from spade_jax.warm_start.families import FAMILIES, Theme

FULL = "configs/laptop.py"
ARMS = {
    "fixed_pool": ("configs/fixed_pool.py:laptop", 1.5),
    "adaptive_difficulty": ("configs/adaptive_difficulty.py:laptop", 1.5),
    "full": (FULL, 1),
}
"""Config, and iterations for one of the full method's, which has hinted plays in every other."""
GAMES = 48
LEVELS = (((2, 3), (2, 3, 4)), ((4,), (0, 1)))
"""Right reactions that a held-out game needs, wrong ones that it forgives."""
SITUATIONS = 6
QUESTION, REPLY = 450, 64  # tokens


def held_out() -> list[Environment]:
    """The same games for everybody."""
    rng = random.Random(2026)
    known = [pair for family in FAMILIES for pair in family.situations]
    found = []
    for index in range(GAMES):
        pairs: dict[str, str] = {}
        while len(pairs) < SITUATIONS:
            pairs.update([rng.choice(known)])
        theme = Theme("Mixed", "held out", list(pairs.items()), *rng.choice(LEVELS))
        source = theme.create(rng, "news").source
        sha = hashlib.sha256(source.encode()).hexdigest()
        found.append(
            Environment(sha, f"held_out_{index}", theme.skill, index, 0, source, document="",
                        exemplars=[], sample=Sample([], [], []))
        )  # fmt: skip
    return found


async def runs(root: pathlib.Path, iterations: int) -> dict[str, dict[str, pathlib.Path]]:
    """The taught model and the probe first, then every run, a few at a time; arm -> seed -> run."""
    await self_play.train(FULL, root / "probe", "iterations=4", "learner.learning_rate=0.0")
    taught = root / "probe" / policy.INITIAL
    free = asyncio.Semaphore(self_play.AT_ONCE)

    async def one(arm: str, seed: int) -> None:
        file, longer = ARMS[arm]
        async with free:
            await self_play.train(
                file,
                root / arm / f"seed_{seed}",
                *(f"iterations={round(iterations * longer)}", f"seed={seed}"),
                *(f"model.source={taught}", "warm_start.enabled=False"),
            )

    await asyncio.gather(*(one(arm, seed) for seed in self_play.SEEDS for arm in ARMS))
    return {
        arm: {str(seed): root / arm / f"seed_{seed}" for seed in self_play.SEEDS} for arm in ARMS
    }


class Readable(reasoning_gym.ReasoningGym):
    """The benchmark's items of those tasks whose questions the model has room for."""

    params = dataclasses.replace(reasoning_gym.ReasoningGym.params, max_tokens=REPLY)

    def __init__(self, tokenizer: Any):
        whole = reasoning_gym.hard()
        longest = dict.fromkeys(TASKS, 0)
        for item in whole.items():
            text = reasoning_gym.PROMPT.format(question=item.data["question"])
            size = len(tokenizer(text)["input_ids"])
            longest[item.data["task"]] = max(longest[item.data["task"]], size)
        tasks = [task for task, size in longest.items() if 0 < size <= QUESTION]
        name, title = "reasoning_gym_readable", f"Reasoning-Gym hard, {len(tasks)} tasks"
        super().__init__(name, title, 42, reasoning_gym.INDICES, tasks)


async def answered(
    settings: config.Config, weights: evaluation.Weights, out: pathlib.Path, progress: RunProgress
) -> dict[str, Any]:
    """What the benchmark's result says of a policy, and its floors."""
    benchmark = Readable(weights.tokenizer)
    facts = evaluation.facts_of(settings, weights.name, weights.params)
    with evaluation.sampling(weights, settings, out) as sampler:
        player = SamplerPolicy(sampler, Renderer(weights.tokenizer), settings.sampler.context)
        return await evaluation.score(
            benchmark, player, facts, out, 0, settings.sampler.slots, progress
        )


def scored(
    workdir: pathlib.Path, checkpoint: str, games: Mapping[str, Sequence[Environment]]
) -> dict[str, float]:
    """What the first (``initial``) or last ('') policy of a run gets, kept beside its metrics."""
    kept = workdir / f"scored_{checkpoint or 'last'}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    settings = config.from_config_dict(json.loads((workdir / "config.json").read_text()))
    with RunProgress("policy", 1, console=Console()) as progress:
        weights = evaluation.load(settings, workdir, checkpoint, progress)
        nnx.update(weights.model, weights.params)
        found = {
            name: asyncio.run(
                self_play.played(weights.model, weights.tokenizer, settings, environments)
            )
            for name, environments in games.items()
        }
        out = workdir / "evaluation" / weights.name / "reasoning_gym_readable"
        result = asyncio.run(answered(settings, weights, out, progress))
    found["reasoning_gym"] = result["mean"]["mean"]
    found["constant_answer"] = statistics.fmean(result["floors"]["constant answer"].values()) / 100
    kept.write_text(json.dumps(found))
    return found


def spent(workdir: pathlib.Path) -> dict[str, float]:
    """Iterations, episodes, sampled tokens and minutes of a run."""
    table = self_play.rows(workdir)
    budget = {name: sum(map(count, table)) for name, count in sweep.BUDGETS.items()}
    seconds = sum(row["time/iteration"] for row in table)
    return budget | {
        "minutes": seconds / 60,
        "returns/plain": self_play.mean(table, "returns/plain"),
    }


def compared(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and standard error over seeds."""
    table = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
        table[name] = {"mean": statistics.fmean(values), "error": error}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", type=pathlib.Path, required=True)
    parser.add_argument("--iterations", type=int, default=32, help="of the full method")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    paths = asyncio.run(runs(arguments.workdir, arguments.iterations))
    taught = arguments.workdir / "probe"
    games = {"held_out": held_out(), "probe": self_play.probe(taught)}
    table = {"base": compared([scored(taught, "initial", games)])}
    for arm, seeds in paths.items():
        rows = [scored(path, "", games) | spent(path) for path in seeds.values()]
        table[arm] = compared(rows) | {"seeds": rows}
    self_play.tell(table, arguments.json)


if __name__ == "__main__":
    main()

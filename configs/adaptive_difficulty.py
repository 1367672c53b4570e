"""Baseline: only the agent learns, on procedural tasks that get harder as it masters them (RLVE).

    python -m spade_jax.train --config=configs/adaptive_difficulty.py:30b --workdir=runs/adaptive
    python -m spade_jax.train --config=configs/adaptive_difficulty.py:laptop --workdir=runs/tasks

Words: a size and a slice, as in configs/games.py, or ``laptop`` (configs/laptop.py); and
``published``: 16 tasks an iteration, 16 plays of one problem each, temperature 1, no KL. Everything
else is as there, so that a run beside one of theirs differs in where environments come from: each
iteration plays a new set of different tasks, each at a level out of its window, which moves up once
0.9 of at least 128 plays at its top level were solved.

The tasks are generators of Reasoning Gym (extra ``eval``) with parameters of our own; for
``laptop``, whose model cannot read those, the situations of its games, and 24 plays. With
``--config.tasks.module`` any others, the published ones included (docs/baselines.md).

Topology: that of configs/games.py; for ``laptop`` one process on a CPU with 2 cores. Expect 400
iterations of up to 384 agent trajectories (``published``: 256), of one turn each; on the laptop the
lesson of configs/laptop.py (cached), then 8 iterations of 96.
"""

import runpy
from pathlib import Path

from spade_jax import config as config_lib

HERE = Path(__file__).parent
GAMES = runpy.run_path(str(HERE / "games.py"))
ABOUT_ENVIRONMENTS = GAMES["VARIANTS"].keys() - {"published"}


def get_config(variant: str = ""):
    """``variant``: a size and a slice of configs/games.py, or ``laptop``; and ``published``."""
    words = [word for word in variant.split(",") if word]
    rest = [word for word in words if word != "published"]
    for word in rest:
        if word in ABOUT_ENVIRONMENTS or (word == "laptop" and len(words) > 1):
            raise config_lib.ConfigError(
                f"configs/adaptive_difficulty.py:{variant}: {word!r} does not go with the rest; "
                "there are sizes and slices of configs/games.py, published, and laptop (alone)"
            )
    file, words_there = ("laptop.py", "") if "laptop" in rest else ("games.py", ",".join(rest))
    config = runpy.run_path(str(HERE / file))["get_config"](words_there)
    config.schedule.update(k=1, delay=1)
    if "laptop" in rest:
        config.tasks.update(module="spade_jax.warm_start.tasks", attempts=24)
    else:
        config.tasks.module = "spade_jax.environments.reasoning_gym"
    if "published" in words:
        config.schedule.update(slots=16, plain_plays=16, instances=1)
        config.agent.update(temperature=1.0)
        config.learner.kl_coefficient = 0.0
    return config

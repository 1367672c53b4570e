"""Baseline: only the agent learns, on a pool of environments that never changes.

    python -m spade_jax.train --config=configs/fixed_pool.py:30b --workdir=runs/fixed-pool-30b
    python -m spade_jax.train --config=configs/fixed_pool.py:laptop --workdir=runs/fixed-pool

Words: a size, a slice and ``published``, as in configs/games.py, or ``laptop`` (configs/laptop.py);
and ``balanced``: every skill of the pool equally often. Everything else is as there, so that a run
beside one of theirs differs in where environments come from: each iteration takes a new set out of
the pool, without replacement until all have come.

The pool of the large sizes is the published one, 7 872 games written by GPT-5.5, fetched from the
hub; ``--config.pool.source`` names another (docs/baselines.md). That of ``laptop`` comes with the
package.

Topology: that of configs/games.py; for ``laptop`` one process on a CPU with 2 cores. Expect 400
iterations of up to 384 agent trajectories (``published``: 192) and 1.2 passes over the pool; on the
laptop the lesson of configs/laptop.py (cached), then 8 iterations of 96 trajectories.
"""

import runpy
from pathlib import Path

from spade_jax import config as config_lib

HERE = Path(__file__).parent
PUBLISHED = "hf:spade-rl/SPADE-Environment-Pool-GPT5.5-Games"
GAMES = runpy.run_path(str(HERE / "games.py"))
ABOUT_THE_DESIGNER = GAMES["VARIANTS"].keys() - {"published"}


def get_config(variant: str = ""):
    """``variant``: words of configs/games.py or ``laptop``, and ``balanced``, with commas."""
    words = [word for word in variant.split(",") if word]
    rest = [word for word in words if word != "balanced"]
    for word in rest:
        if word in ABOUT_THE_DESIGNER or (word == "laptop" and len(rest) > 1):
            raise config_lib.ConfigError(
                f"configs/fixed_pool.py:{variant}: {word!r} does not go with the rest; there are "
                "sizes and slices of configs/games.py, published, laptop (alone) and balanced"
            )
    file, words_there = ("laptop.py", "") if "laptop" in rest else ("games.py", ",".join(rest))
    config = runpy.run_path(str(HERE / file))["get_config"](words_there)
    config.pool.source = "laptop" if "laptop" in rest else PUBLISHED
    config.pool.balanced = "balanced" in words
    config.schedule.update(k=1, delay=1)
    return config

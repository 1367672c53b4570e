"""The tool-use setting with the figures of arXiv 2608.19197, at its three sizes.

    python -m spade_jax.train --config=configs/tools.py:30b --workdir=runs/tools-30b
    python -m spade_jax.train --config=configs/tools.py:4b,published --workdir=runs/tools-4b

Words: a size (``4b`` is the default) and a slice, as in configs/games.py, its ablations but for
``two_skills``, and ``published``. The designer writes environments whose actions are function calls
(docs/tools.md); documents give them flavour only. ``published`` has 8 plain plays on one instance,
no top-ups, fewer checks and the model-based one; for ``4b`` it is also the older recipe of that
size: 500 iterations, k = delay = 32, 16 environments of 16 plays, the designer paid by regret, 4
hinted plays.

Topology and memory are those of configs/games.py. Expect 400 iterations of up to 384 agent and,
every eighth, 24 designer trajectories. The corpus is built once beforehand (docs/data.md).
"""

import runpy
from pathlib import Path

from spade_jax import config as config_lib

GAMES = runpy.run_path(str(Path(__file__).parent / "games.py"))


def get_config(variant: str = ""):
    """``variant``: words of configs/games.py but ``two_skills``, with commas; '' is ``4b``."""
    words = [word for word in variant.split(",") if word]
    if "two_skills" in words:
        raise config_lib.ConfigError(
            f"configs/tools.py:{variant}: 'two_skills' are skills of games; the other words of "
            "configs/games.py go with tools"
        )
    config = GAMES["get_config"](variant)
    config.setting = "tools"
    config.schedule.update(k=8, delay=8)
    config.schedule.update(skills=config_lib.TOOL_SKILLS, active_skills=0)
    config.agent.update(mask_truncated=True, mask_malformed=True)
    config.hints.max_tokens = 2048
    if config.corpus.source:
        config.corpus.update(source="tfds:spade_corpus/tools", max_tokens=5500)
    config.learner.kl_coefficient = 0.005
    config.checkpoint.every = 8
    config.review.enabled = "published" in words
    if "published" in words and config.model.source == GAMES["MODELS"]["4b"]:
        _older(config)
    return config


def _older(config):
    config.iterations = 500
    config.schedule.update(k=32, delay=32, slots=16, plain_plays=16, hinted_plays=4)
    config.rewards.kind = "regret"
    config.hints.max_tokens = 512
    config.checkpoint.every = 16

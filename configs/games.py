"""The games setting with the figures of arXiv 2608.19197, at its three sizes.

    python -m spade_jax.train --config=configs/games.py:30b --workdir=runs/games-30b
    python -m spade_jax.train --config=configs/games.py:30b,no_memory --workdir=runs/no-memory
    python -m spade_jax.train --config=configs/games.py:4b,v6e:4x4 --workdir=runs/games-4b

Sizes: ``4b`` (Qwen3-4B-Instruct-2507, the default), ``8b`` (Qwen3-8B) and ``30b``
(Qwen3-30B-A3B-Instruct-2507). Variants change only what their name says:

    no_memory             the designer sees no past environments
    no_corpus             the designer sees no document
    no_designer_training  environments are written by the policy, but only playing is trained
    two_skills            Mathematical Reasoning and Pattern Recognition, both in every epoch
    learning_potential    the designer is paid by how far returns move from the skill's average
    solve_rate            the designer is paid by difficulty alone
    published             8 plain plays on one instance, no top-ups, fewer checks

Topology: a TPU slice is a word too (``v5p:4x4x4``); each size has those of ``SLICES``, the first if
none is named; docs/compile.md says how to learn what it needs. The published runs took one node of
8 accelerators of 80 GB; for other devices than TPUs set ``config.mesh``, ``config.learner.rows``,
``config.model.attention=xla`` and, for 30b, ``config.model.experts=ragged_dot``. Expect 400
iterations of up to 384 agent and, every fourth, 24 designer trajectories. The corpus is built once
beforehand (docs/data.md). Where these figures differ from the published ones, docs/method.md says
why.
"""

from spade_jax import config as config_lib

MODELS = {
    "4b": "Qwen/Qwen3-4B-Instruct-2507",
    "8b": "Qwen/Qwen3-8B",
    "30b": "Qwen/Qwen3-30B-A3B-Instruct-2507",
}

SLICES = {
    "4b": {
        "v5p:2x2x2": {"fsdp": 8},
        "v6e:4x4": {"fsdp": 4, "tensor": 4},
    },
    "8b": {
        "v5p:2x2x2": {"fsdp": 8},
        "v6e:8x8": {"fsdp": 16, "tensor": 4},
    },
    "30b": {
        "v5p:4x4x4": {"fsdp": 16, "expert": 4},
    },
}
"""Slice -> mesh, of each size; docs/compile.md says what the compiler makes of each."""


def get_config(variant: str = ""):
    """``variant``: a size, a slice of it and any of ``VARIANTS``, with commas; '' is ``4b``."""
    words = [word for word in variant.split(",") if word]
    sizes = [word for word in words if word in MODELS] or ["4b"]
    slices = [word for word in words if word in SLICES[sizes[0]]] or list(SLICES[sizes[0]])[:1]
    for word in words:
        if word not in (*sizes, *slices, *VARIANTS):
            raise config_lib.ConfigError(
                f"configs/games.py:{variant}: no variant {word!r}; there are the sizes "
                f"{', '.join(MODELS)}, for {sizes[0]} the slices {', '.join(SLICES[sizes[0]])}, "
                f"and {', '.join(VARIANTS)}"
            )
    for what, named in (("size", sizes), ("slice", slices)):
        if len(named) > 1:
            both = " and ".join(named)
            raise config_lib.ConfigError(f"configs/games.py:{variant}: {both}: name one {what}")
    config = _recipe(sizes[0])
    _lay_out(config, SLICES[sizes[0]][slices[0]])
    for word in words:
        if word in VARIANTS:
            VARIANTS[word](config)
    return config


def _recipe(size: str):
    """Every published figure, whether or not it is the default."""
    config = config_lib.default_config()
    config.setting = "games"
    config.iterations = 400
    config.model.source = MODELS[size]
    config.model.update(compute_dtype="bfloat16", thinking=size == "8b")
    config.schedule.update(k=4, delay=4, slots=24, plain_plays=16, hinted_plays=16)
    config.schedule.update(skills=config_lib.GAME_SKILLS, active_skills=3)
    config.designer.update(difficulty="medium", attempts=5, deadline=900.0)
    config.designer.update(temperature=0.6, top_p=0.95, top_k=20)
    config.designer.max_tokens = 20000 if size == "8b" else 16384
    config.agent.update(temperature=0.6, top_p=0.95, top_k=20)
    config.agent.update(max_tokens=8192, max_turns=25, max_episode_tokens=32768)
    config.hints.update(temperature=0.3, top_p=0.9, top_k=0, max_tokens=4096, words=100)
    config.rewards.update(regret_weight=0.4, regret_scale=0.15, anchor_weight=0.6)
    config.rewards.update(anchor_low=0.4, anchor_high=0.6, anchor_ramp=0.25, scale_cap=50.0)
    config.memory.update(capacity=200, exemplars=2, avoid=1, snippet=2000)
    config.memory.update(low=0.15, high=0.85, top=10)
    config.corpus.update(source="tfds:spade_corpus/games", max_tokens=8192)
    config.sampler.update(context=32768, slots=128, cache_mb=32768, hosts_per_replica=1)
    config.learner.update(learning_rate=1e-6, beta1=0.9, beta2=0.98, weight_decay=0.1)
    config.learner.update(warmup=0, clip_norm=1.0, role_weighting="paper")
    config.learner.update(clip_low=0.2, clip_high=0.28, importance_cap=2.0)
    config.learner.update(entropy_coefficient=0.0, kl_coefficient=0.005 if size == "8b" else 0.0)
    config.learner.row_length = 32768
    config.checkpoint.update(every=4, keep=3, keep_every=16)
    return config


def _lay_out(config, mesh):
    """One row of a micro-batch on each device that has rows of its own."""
    config.mesh.update(mesh)
    config.learner.rows = config.mesh.data * config.mesh.fsdp * config.mesh.expert
    config.model.update(attention="splash", experts="gmm")


def _no_memory(config):
    config.memory.capacity = 0


def _no_corpus(config):
    config.corpus.source = ""


def _no_designer_training(config):
    config.designer.trained = False


def _two_skills(config):
    config.schedule.skills = ("Mathematical Reasoning", "Pattern Recognition")
    config.schedule.active_skills = 2


def _learning_potential(config):
    config.rewards.kind = "learning_potential"


def _solve_rate(config):
    config.rewards.kind = "solve_rate"


def _published(config):
    config.schedule.update(plain_plays=8, instances=1, top_up=False)
    config.validation.preset = "published"


VARIANTS = {
    "no_memory": _no_memory,
    "no_corpus": _no_corpus,
    "no_designer_training": _no_designer_training,
    "two_skills": _two_skills,
    "learning_potential": _learning_potential,
    "solve_rate": _solve_rate,
    "published": _published,
}

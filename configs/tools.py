"""The tool-use setting with the figures of arXiv 2608.19197, at its three sizes.

    python -m spade_jax.train --config=configs/tools.py:30b --workdir=runs/tools-30b
    python -m spade_jax.train --config=configs/tools.py:4b,published --workdir=runs/tools-4b

Sizes: ``4b`` (Qwen3-4B-Instruct-2507, the default), ``8b`` (Qwen3-8B) and ``30b``
(Qwen3-30B-A3B-Instruct-2507). The designer writes environments whose actions are function calls
(docs/tools.md); documents give them flavour only. ``published`` has 8 plain plays on one instance,
no top-ups and fewer checks; for ``4b`` it is also the older recipe of that size: 500 iterations,
k = delay = 32, 16 environments of 16 plays, the designer paid by regret, 4 hinted plays.

Topology and memory are those of configs/games.py. Expect 400 iterations of up to 384 agent and,
every eighth, 24 designer trajectories. The corpus is built once beforehand (docs/data.md).
"""

from spade_jax import config as config_lib

MODELS = {
    "4b": "Qwen/Qwen3-4B-Instruct-2507",
    "8b": "Qwen/Qwen3-8B",
    "30b": "Qwen/Qwen3-30B-A3B-Instruct-2507",
}


def get_config(variant: str = ""):
    """``variant``: a size and ``published``, separated by a comma; '' is ``4b``."""
    words = [word for word in variant.split(",") if word]
    unknown = [word for word in words if word not in MODELS and word != "published"]
    if unknown:
        raise config_lib.ConfigError(
            f"configs/tools.py:{variant}: no variant {unknown[0]!r}; there are the sizes "
            f"{', '.join(MODELS)} and published"
        )
    sizes = [word for word in words if word in MODELS] or ["4b"]
    if len(sizes) > 1:
        raise config_lib.ConfigError(f"configs/tools.py:{variant}: name one size, not {sizes}")
    config = _recipe(sizes[0])
    if "published" in words:
        config.schedule.update(plain_plays=8, instances=1, top_up=False)
        config.validation.preset = "published"
        if sizes[0] == "4b":
            _older(config)
    return config


def _recipe(size: str):
    """Every published figure, whether or not it is the default."""
    config = config_lib.default_config()
    config.setting = "tools"
    config.iterations = 400
    config.model.source = MODELS[size]
    config.model.update(compute_dtype="bfloat16", thinking=size == "8b")
    config.schedule.update(k=8, delay=8, slots=24, plain_plays=16, hinted_plays=16)
    config.schedule.update(skills=config_lib.TOOL_SKILLS, active_skills=0)
    config.designer.update(difficulty="medium", attempts=5, deadline=900.0)
    config.designer.update(temperature=0.6, top_p=0.95, top_k=20)
    config.designer.max_tokens = 20000 if size == "8b" else 16384
    config.agent.update(temperature=0.6, top_p=0.95, top_k=20)
    config.agent.update(max_tokens=8192, max_turns=25, max_episode_tokens=32768)
    config.agent.update(mask_truncated=True, mask_malformed=True)
    config.hints.update(temperature=0.3, top_p=0.9, top_k=0, max_tokens=2048, words=100)
    config.rewards.update(regret_weight=0.4, regret_scale=0.15, anchor_weight=0.6)
    config.rewards.update(anchor_low=0.4, anchor_high=0.6, anchor_ramp=0.25, scale_cap=50.0)
    config.memory.update(capacity=200, exemplars=2, avoid=1, snippet=2000)
    config.memory.update(low=0.15, high=0.85, top=10)
    config.corpus.update(source="tfds:spade_corpus/tools", max_tokens=5500)
    config.sampler.update(context=32768, slots=128, cache_mb=32768)
    config.learner.update(learning_rate=1e-6, beta1=0.9, beta2=0.98, weight_decay=0.1)
    config.learner.update(warmup=0, clip_norm=1.0, role_weighting="paper")
    config.learner.update(clip_low=0.2, clip_high=0.28, importance_cap=2.0)
    config.learner.update(entropy_coefficient=0.0, kl_coefficient=0.005)
    config.learner.update(row_length=32768, rows=1)
    config.checkpoint.update(every=8, keep=3, keep_every=16)
    return config


def _older(config):
    config.iterations = 500
    config.schedule.update(k=32, delay=32, slots=16, plain_plays=16, hinted_plays=4)
    config.rewards.kind = "regret"
    config.hints.max_tokens = 512
    config.checkpoint.update(every=16)

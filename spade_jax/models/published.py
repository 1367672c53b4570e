"""``config.json`` of published checkpoints, to size and compile a run where no hub is within reach.

Weights are never loaded by these: a checkpoint's own file decides (:mod:`.huggingface`).
"""

from typing import Any

_QWEN3 = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 36,
    "rms_norm_eps": 1e-6,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-4B-Instruct-2507": {
        **_QWEN3,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "tie_word_embeddings": True,
        "rope_theta": 5e6,
        "max_position_embeddings": 262144,
    },
    "Qwen/Qwen3-8B": {
        **_QWEN3,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "tie_word_embeddings": False,
        "rope_theta": 1e6,
        "max_position_embeddings": 40960,
    },
    "Qwen/Qwen3-30B-A3B-Instruct-2507": {
        **_QWEN3,
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "tie_word_embeddings": False,
        "rope_theta": 1e7,
        "max_position_embeddings": 262144,
    },
}

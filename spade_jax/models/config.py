"""The shape of a policy, read from and written to Hugging Face ``config.json`` keys."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

MODEL_TYPES = ("qwen3", "qwen3_moe", "qwen2", "llama")

_ROPE_KEYS = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "attention_factor",
    ),
}
_ARCHITECTURES = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "llama": "LlamaForCausalLM",
}


class ModelError(ValueError):
    """A model or checkpoint that cannot be used: names the thing, the reason and the remedy."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Dimensions and switches of one decoder.

    Attributes:
      feed_forward: width of the dense MLP; unused where ``experts`` > 0.
      rope_scaling: sorted (key, value) pairs of the RoPE scaling, ``rope_type`` among them; empty
        for plain RoPE.
      attention_bias: whether q, k and v have biases (the output projection never has).
      qk_norm: RMSNorm of q and k over ``head_dim``, shared by the heads, before RoPE.
      experts: experts of each layer; 0 = dense.
      expert_renormalise: whether the chosen experts' probabilities are made to sum to 1.
      max_positions: positions the model was trained for, informative only.
      initial_std: standard deviation of random matrices.
      eos_tokens: ids that end a generation.
    """

    model_type: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    max_positions: int
    rope_theta: float = 10000.0
    rope_scaling: tuple[tuple[str, Any], ...] = ()
    rms_epsilon: float = 1e-6
    tied: bool = False
    attention_bias: bool = False
    qk_norm: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_feed_forward: int = 0
    expert_renormalise: bool = True
    initial_std: float = 0.02
    bos_token: int | None = None
    eos_tokens: tuple[int, ...] = ()
    pad_token: int | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ModelError(
                f"num_attention_heads={self.heads} is not a multiple of "
                f"num_key_value_heads={self.kv_heads}; make it one"
            )
        if self.head_dim % 2:
            raise ModelError(f"head_dim={self.head_dim} must be even for RoPE")
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            raise ModelError(
                f"num_experts_per_tok={self.experts_per_token} must lie between 1 and "
                f"num_experts={self.experts}"
            )

    @classmethod
    def from_hf(cls, values: Mapping[str, Any]) -> "ModelConfig":
        """From the dictionary of a ``config.json`` of transformers 4 or 5.

        Raises:
          ModelError: a key is missing, or asks for something this decoder does not do.
        """
        model_type = _require(values, "model_type")
        if model_type not in MODEL_TYPES:
            raise ModelError(
                f"model_type={model_type!r} is not supported; use one of {', '.join(MODEL_TYPES)}"
            )
        _refuse_unsupported(values, model_type)
        moe, heads = model_type == "qwen3_moe", _require(values, "num_attention_heads")
        hidden, positions = _require(values, "hidden_size"), _require_positions(values)
        theta, scaling = _rope(values, positions)
        # Transformers falls back to head_dim 128 for qwen3 only; there a missing key is a mistake.
        head_dim = (
            _require(values, "head_dim")
            if model_type == "qwen3"
            else values.get("head_dim") or hidden // heads
        )
        experts_key = "num_experts" if "num_experts" in values else "num_local_experts"
        eos = values.get("eos_token_id")
        return cls(
            model_type=model_type,
            vocabulary=_require(values, "vocab_size"),
            hidden=hidden,
            layers=_require(values, "num_hidden_layers"),
            heads=heads,
            kv_heads=values.get("num_key_value_heads") or heads,
            head_dim=head_dim,
            feed_forward=values.get("intermediate_size", 0)
            if moe
            else _require(values, "intermediate_size"),
            max_positions=positions,
            rope_theta=theta,
            rope_scaling=scaling,
            rms_epsilon=float(values.get("rms_norm_eps", 1e-6)),
            tied=bool(values.get("tie_word_embeddings", False)),
            attention_bias=model_type == "qwen2",
            qk_norm=model_type in ("qwen3", "qwen3_moe"),
            experts=_require(values, experts_key) if moe else 0,
            experts_per_token=_require(values, "num_experts_per_tok") if moe else 0,
            expert_feed_forward=_require(values, "moe_intermediate_size") if moe else 0,
            expert_renormalise=bool(values.get("norm_topk_prob", False)) if moe else True,
            initial_std=float(values.get("initializer_range", 0.02)),
            bos_token=values.get("bos_token_id"),
            eos_tokens=() if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
            pad_token=values.get("pad_token_id"),
        )

    def to_hf(self) -> dict[str, Any]:
        """The ``config.json`` dictionary; transformers 4 and 5 and SGLang read it."""
        scaling = dict(self.rope_scaling)
        values: dict[str, Any] = {
            "architectures": [_ARCHITECTURES[self.model_type]],
            "model_type": self.model_type,
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_positions,
            "initializer_range": self.initial_std,
            "rms_norm_eps": self.rms_epsilon,
            "tie_word_embeddings": self.tied,
            "attention_bias": self.attention_bias,
            "attention_dropout": 0.0,
            "use_cache": True,
            "rope_theta": self.rope_theta,
            "rope_scaling": scaling or None,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                **scaling,
            },
            "bos_token_id": self.bos_token,
            "eos_token_id": list(self.eos_tokens)
            if len(self.eos_tokens) > 1
            else next(iter(self.eos_tokens), None),
            "pad_token_id": self.pad_token,
        }
        if self.model_type == "qwen2":
            del values["attention_bias"]  # implied by the model type
        if self.model_type == "llama":
            values["mlp_bias"] = False
        else:
            values |= {"use_sliding_window": False, "sliding_window": None}
        if self.experts:
            values |= {
                "num_experts": self.experts,
                "num_experts_per_tok": self.experts_per_token,
                "moe_intermediate_size": self.expert_feed_forward,
                "norm_topk_prob": self.expert_renormalise,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [],
            }
        return values


def _require(values: Mapping[str, Any], key: str) -> Any:
    if values.get(key) is None:
        near = difflib.get_close_matches(key, values, n=1)
        hint = f"; did you mean it by {near[0]!r}?" if near else "; add it to config.json"
        raise ModelError(f"config.json: {key} is missing{hint}")
    return values[key]


def _require_positions(values: Mapping[str, Any]) -> int:
    return int(_require(values, "max_position_embeddings"))


def _rope(values: Mapping[str, Any], positions: int) -> tuple[float, tuple[tuple[str, Any], ...]]:
    nested = dict(values.get("rope_parameters") or {})
    scaling = nested or dict(values.get("rope_scaling") or {})
    theta = scaling.pop("rope_theta", values.get("rope_theta", 10000.0))
    kind = scaling.pop("rope_type", None) or scaling.pop("type", "default")
    scaling.pop("type", None)
    scaling = {key: value for key, value in scaling.items() if value is not None}
    if scaling.pop("partial_rotary_factor", values.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError("partial_rotary_factor other than 1 is not supported")
    if kind not in _ROPE_KEYS:
        raise ModelError(f"rope_type={kind!r} is not supported; use one of {', '.join(_ROPE_KEYS)}")
    for key in scaling:
        if key not in _ROPE_KEYS[kind]:
            raise ModelError(f"rope_scaling.{key} is not supported with rope_type={kind!r}")
    if kind == "default":
        return float(theta), ()
    if "original_max_position_embeddings" in _ROPE_KEYS[kind]:
        scaling.setdefault("original_max_position_embeddings", positions)
    for key in _ROPE_KEYS[kind]:
        if key not in scaling and key not in ("beta_fast", "beta_slow", "attention_factor"):
            raise ModelError(f"rope_scaling.{key} is missing; rope_type={kind!r} needs it")
    return float(theta), tuple(sorted({"rope_type": kind, **scaling}.items()))


def _refuse_unsupported(values: Mapping[str, Any], model_type: str) -> None:
    def refuse(key: str, why: str) -> None:
        raise ModelError(f"config.json: {key}={values[key]!r} is not supported: {why}")

    if values.get("hidden_act", "silu") not in ("silu", "swish"):
        refuse("hidden_act", "the MLP is SwiGLU (silu)")
    if values.get("use_sliding_window") and values.get("sliding_window"):
        refuse("use_sliding_window", "attention is full and causal; set it to false")
    if set(values.get("layer_types") or ["full_attention"]) != {"full_attention"}:
        refuse("layer_types", "every layer has full attention")
    if values.get("attention_bias") and model_type != "qwen2":
        refuse("attention_bias", "only qwen2 has attention biases")
    if values.get("mlp_bias"):
        refuse("mlp_bias", "the MLP has no biases")
    if values.get("quantization_config"):
        refuse("quantization_config", "weights must be float; use the unquantised checkpoint")
    if values.get("mlp_only_layers"):
        refuse("mlp_only_layers", "every layer of an MoE has experts")
    if values.get("decoder_sparse_step", 1) != 1:
        refuse("decoder_sparse_step", "every layer of an MoE has experts")
    if values.get("shared_expert_intermediate_size"):
        refuse("shared_expert_intermediate_size", "shared experts do not exist here")

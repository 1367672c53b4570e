"""The slow way: one trajectory at a time, unpadded, through transformers in float64 torch."""

import numpy as np
import optax
import torch
from flax import nnx
from transformers import Qwen3Config, Qwen3ForCausalLM

from spade_jax import config
from spade_jax.learner.packing import Trajectory
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import Transformer, build

VOCABULARY = 61


def tiny_model(seed: int = 0, vocabulary: int = VOCABULARY, mesh=None) -> Transformer:
    """Two-layer Qwen3 with weights large enough to make peaked distributions."""
    shape = ModelConfig(
        model_type="qwen3",
        vocabulary=vocabulary,
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        feed_forward=48,
        max_positions=256,
        tied=True,
        qk_norm=True,
        initial_std=0.2,
    )
    return build(shape, config.Model(), seed, mesh=mesh)


def settings(**changes) -> config.Learner:
    """Small rows, and a clip so high that the optimizer sees the gradient itself."""
    return config.Learner(**{"row_length": 64, "rows": 4, "clip_norm": 1e9} | changes)


def draw(seed: int, count: int, longest: int = 60, **changes) -> list[Trajectory]:
    """Random trajectories of both groups with gaps, advantages and temperatures."""
    rng = np.random.default_rng(seed)
    drawn = []
    for index in range(count):
        length = int(rng.integers(2, longest + 1))
        trained = rng.random(length) < 0.5
        trained[0], trained[rng.integers(1, length)] = False, True
        values = {
            "tokens": rng.integers(0, VOCABULARY, length).tolist(),
            "trained": trained.tolist(),
            "sampler_logp": rng.uniform(-8, -0.5, length).tolist(),
            "advantage": float(rng.normal()),
            "weight": float(rng.uniform(0.5, 2)),
            "group": index % 2,
            "temperature": (0.6, 1.0)[index % 2],
        }
        drawn.append(Trajectory(**values | changes))
    return drawn


class TorchOracle:
    """The model in float64 torch, and losses by the formulas of docs/learner.md."""

    def __init__(self, model: Transformer, params=None) -> None:
        """``params`` are those of ``model`` if None."""
        c = model.config
        shape = Qwen3Config(
            vocab_size=c.vocabulary,
            hidden_size=c.hidden,
            num_hidden_layers=c.layers,
            num_attention_heads=c.heads,
            num_key_value_heads=c.kv_heads,
            head_dim=c.head_dim,
            intermediate_size=c.feed_forward,
            rms_norm_eps=c.rms_epsilon,
            rope_theta=c.rope_theta,
            tie_word_embeddings=True,
            attn_implementation="eager",
        )
        self.model = Qwen3ForCausalLM(shape).double()
        params = nnx.state(model) if params is None else params
        self.model.load_state_dict(_to_torch(params), strict=False)

    def logp(self, trajectory: Trajectory) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-prob of each token after the first, and entropy of its distribution."""
        ids = torch.tensor([trajectory.tokens])
        logits = self.model(ids).logits[0, :-1] / trajectory.temperature
        logp = torch.log_softmax(logits, -1)
        target = logp.gather(1, ids[0, 1:, None])[:, 0]
        return target, -(logp.exp() * logp).sum(-1)

    def policy_loss(
        self,
        trajectories: list[Trajectory],
        learner: config.Learner,
        reference: "TorchOracle | None" = None,
        old: "TorchOracle | None" = None,
    ) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for trajectory in trajectories:
            mask = torch.tensor(list(trajectory.trained[1:]), dtype=torch.bool)
            if not mask.any():
                continue
            logp, entropy = (x[mask] for x in self.logp(trajectory))
            sampler = torch.tensor(trajectory.sampler_logp[1:], dtype=torch.float64)[mask]
            sampler = sampler.clamp(min=-100)
            with torch.no_grad():
                old_logp = (old or self).logp(trajectory)[0][mask]
            weight = (old_logp - sampler).exp().clamp(max=learner.importance_cap)
            ratio = (logp - old_logp).exp()
            clipped = ratio.clamp(1 - learner.clip_low, 1 + learner.clip_high)
            surrogate = torch.minimum(ratio * trajectory.advantage, clipped * trajectory.advantage)
            loss = -weight * surrogate
            loss = loss - learner.entropy_coefficient * entropy
            if reference is not None:
                with torch.no_grad():
                    d_reference = reference.logp(trajectory)[0][mask]
                d = logp - d_reference
                loss = loss + learner.kl_coefficient * (torch.exp(-d) - 1 + d).clamp(max=10)
            total = total + trajectory.weight * loss.mean()
        return total / sum(t.weight for t in trajectories)

    def supervised_loss(self, trajectories: list[Trajectory]) -> torch.Tensor:
        means = []
        for trajectory in trajectories:
            mask = torch.tensor(list(trajectory.trained[1:]), dtype=torch.bool)
            means.append(trajectory.weight * -self.logp(trajectory)[0][mask].mean())
        return sum(means) / sum(t.weight for t in trajectories)

    def gradient(self, loss: torch.Tensor) -> dict[str, np.ndarray]:
        """Gradients by transformers' parameter names."""
        self.model.zero_grad()
        loss.backward()
        return {name: p.grad.numpy() for name, p in self.model.named_parameters()}


def to_torch_layout(tree) -> dict[str, np.ndarray]:
    """A parameter-shaped tree (parameters, gradients, moments) by transformers' names."""
    layers = tree["layers"]
    named = {
        "model.embed_tokens.weight": _array(tree["embedding"]),
        "model.norm.weight": _array(tree["norm"]),
    }
    for index in range(_array(layers["q"]).shape[0]):
        layer = {name: _array(value)[index] for name, value in layers.items()}
        hidden = layer["q"].shape[0]
        prefix = f"model.layers.{index}."
        for name in "qkv":
            named[f"{prefix}self_attn.{name}_proj.weight"] = layer[name].reshape(hidden, -1).T
        named[f"{prefix}self_attn.o_proj.weight"] = layer["o"].reshape(-1, hidden).T
        named[f"{prefix}self_attn.q_norm.weight"] = layer["q_norm"]
        named[f"{prefix}self_attn.k_norm.weight"] = layer["k_norm"]
        for name in ("gate", "up", "down"):
            named[f"{prefix}mlp.{name}_proj.weight"] = layer[name].T
        named[f"{prefix}input_layernorm.weight"] = layer["attention_norm"]
        named[f"{prefix}post_attention_layernorm.weight"] = layer["feed_forward_norm"]
    return named


def _array(leaf) -> np.ndarray:
    return np.asarray(leaf[...])


def _to_torch(params) -> dict[str, torch.Tensor]:
    named = to_torch_layout(params)
    tensors = {name: torch.tensor(np.array(x)).double() for name, x in named.items()}
    return tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]}


def gradient_of(learner) -> dict[str, np.ndarray]:
    """The gradient a fresh learner has just applied: Adam's first mean is 0.1 of it."""
    state = learner.state["optimizer"]
    assert learner.updates == 1
    mean = optax.tree_utils.tree_get(state, "mu")
    return {name: x / 0.1 for name, x in to_torch_layout(mean).items()}

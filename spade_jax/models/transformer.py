"""The policy: one pre-norm decoder for Qwen3, Qwen3-MoE, Qwen2 and Llama.

Axes: ``b`` row, ``t`` position, ``d`` model, ``h`` query head, ``k`` kv head, ``c`` head channel,
``f`` feed-forward, ``e`` expert, ``v`` vocabulary, ``l`` layer. Weights of all layers are stacked
on a leading axis and scanned. Matrices multiply in ``compute_dtype``; norms, RoPE, router and
softmax are float32. The residual stream is ``compute_dtype``.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from spade_jax import config as settings_
from spade_jax.models import attention, moe, rope, sharding
from spade_jax.models.config import ModelConfig

Axes = tuple[str | None, ...]


class _Maker:
    """Makes parameters; every one carries its logical axes as metadata ``axes``."""

    def __init__(self, config: ModelConfig, settings: settings_.Model, seed: int):
        self.rngs = nnx.Rngs(seed)
        self.dtype = jnp.dtype(settings.parameter_dtype)
        self.std = config.initial_std

    def normal(self, shape: tuple[int, ...], axes: Axes) -> nnx.Param:
        value = jax.random.normal(self.rngs.params(), shape, jnp.float32) * self.std
        return nnx.Param(value.astype(self.dtype), axes=axes)

    def constant(self, value: float, shape: tuple[int, ...], axes: Axes) -> nnx.Param:
        return nnx.Param(jnp.full(shape, value, self.dtype), axes=axes)


class Block(nnx.Module):
    """One layer; made with a leading ``layers`` axis on every parameter, used without it."""

    def __init__(self, config: ModelConfig, settings: settings_.Model, make: _Maker):
        self.config = config
        self.dtype = jnp.dtype(settings.compute_dtype)
        self.attention_kernel = settings.attention
        self.experts_kernel = settings.experts
        n, d, h, k, c = (
            config.layers,
            config.hidden,
            config.heads,
            config.kv_heads,
            config.head_dim,
        )
        self.attention_norm = make.constant(1.0, (n, d), ("layers", None))
        self.q = make.normal((n, d, h, c), ("layers", "embed", "heads", None))
        self.k = make.normal((n, d, k, c), ("layers", "embed", "kv_heads", None))
        self.v = make.normal((n, d, k, c), ("layers", "embed", "kv_heads", None))
        self.o = make.normal((n, h, c, d), ("layers", "heads", None, "embed"))
        if config.attention_bias:
            self.q_bias = make.constant(0.0, (n, h, c), ("layers", "heads", None))
            self.k_bias = make.constant(0.0, (n, k, c), ("layers", "kv_heads", None))
            self.v_bias = make.constant(0.0, (n, k, c), ("layers", "kv_heads", None))
        if config.qk_norm:
            self.q_norm = make.constant(1.0, (n, c), ("layers", None))
            self.k_norm = make.constant(1.0, (n, c), ("layers", None))
        self.feed_forward_norm = make.constant(1.0, (n, d), ("layers", None))
        if config.experts:
            e, f = config.experts, config.expert_feed_forward
            self.router = make.normal((n, d, e), ("layers", "embed", None))
            self.gate = make.normal((n, e, d, f), ("layers", "expert", "embed", "feed_forward"))
            self.up = make.normal((n, e, d, f), ("layers", "expert", "embed", "feed_forward"))
            self.down = make.normal((n, e, f, d), ("layers", "expert", "feed_forward", "embed"))
        else:
            f = config.feed_forward
            self.gate = make.normal((n, d, f), ("layers", "embed", "feed_forward"))
            self.up = make.normal((n, d, f), ("layers", "embed", "feed_forward"))
            self.down = make.normal((n, f, d), ("layers", "feed_forward", "embed"))

    def __call__(
        self,
        h_btd: jax.Array,
        position_bt: jax.Array,
        segment_bt: jax.Array,
        replayed_btk: jax.Array | None = None,
    ) -> jax.Array:
        q_bthc, k_btkc, v_btkc = self.qkv(h_btd, position_bt)
        o_bthc = attention.attend(q_bthc, k_btkc, v_btkc, segment_bt, self.attention_kernel)
        h_btd = self.attention_output(h_btd, o_bthc)
        return self.feed_forward(h_btd, segment_bt > 0, replayed_btk)[0]

    def qkv(
        self, h_btd: jax.Array, position_bt: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Pre-norm, projections, q/k-norm and RoPE: q_bthc, k_btkc, v_btkc."""
        config = self.config
        x_btd = _rms_norm(h_btd, self.attention_norm, config.rms_epsilon)
        q_bthc, k_btkc, v_btkc = (
            _product(x_btd, self._weight(weight)) for weight in (self.q, self.k, self.v)
        )
        if config.attention_bias:
            q_bthc += self._weight(self.q_bias)
            k_btkc += self._weight(self.k_bias)
            v_btkc += self._weight(self.v_bias)
        if config.qk_norm:
            q_bthc = _rms_norm(q_bthc, self.q_norm, config.rms_epsilon)
            k_btkc = _rms_norm(k_btkc, self.k_norm, config.rms_epsilon)
        frequency, factor = rope.frequencies(config)
        q_bthc = rope.apply(q_bthc, position_bt, frequency, factor)
        k_btkc = rope.apply(k_btkc, position_bt, frequency, factor)
        return q_bthc, k_btkc, v_btkc

    def attention_output(self, h_btd: jax.Array, o_bthc: jax.Array) -> jax.Array:
        """Output projection and residual."""
        return h_btd + jnp.einsum("bthc,hcd->btd", o_bthc, self._weight(self.o))

    def feed_forward(
        self, h_btd: jax.Array, valid_bt: jax.Array, replayed_btk: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array | None]:
        """Pre-norm, MLP or experts, residual. Where not valid, experts do no work and add 0.

        Args:
          replayed_btk: experts to take, see :func:`moe.route`.

        Returns:
          h_btd, and the ids int32 [b, t, k] of the experts taken, None of an MLP.
        """
        x_btd = _rms_norm(h_btd, self.feed_forward_norm, self.config.rms_epsilon)
        gate, up, down = map(self._weight, (self.gate, self.up, self.down))
        if not self.config.experts:
            a_btf = jax.nn.silu(_product(x_btd, gate)) * _product(x_btd, up)
            return h_btd + a_btf @ down, None
        weight_btk, expert_btk = moe.route(
            x_btd,
            self.router[...],
            self.config.experts_per_token,
            self.config.expert_renormalise,
            replayed_btk,
        )
        working_btk = jnp.where(valid_bt[..., None], expert_btk, self.config.experts)
        o_btd = moe.mixture(x_btd, weight_btk, working_btk, gate, up, down, self.experts_kernel)
        return h_btd + o_btd.astype(h_btd.dtype), expert_btk

    def _weight(self, parameter: nnx.Param) -> jax.Array:
        return parameter[...].astype(self.dtype)


class Transformer(nnx.Module):
    """The decoder. ``nnx.split`` it: the state is the parameter tree that the learner trains."""

    def __init__(
        self, config: ModelConfig, settings: settings_.Model, seed: int, remat: bool = False
    ):
        self.config = config
        self.dtype = jnp.dtype(settings.compute_dtype)
        self.remat = remat
        make = _Maker(config, settings, seed)
        shape = (config.vocabulary, config.hidden)
        self.embedding = make.normal(shape, ("vocabulary", "embed"))
        self.layers = Block(config, settings, make)
        self.norm = make.constant(1.0, (config.hidden,), (None,))
        if not config.tied:
            self.output = make.normal(shape, ("vocabulary", "embed"))

    def hidden(
        self,
        token_bt: jax.Array,
        position_bt: jax.Array,
        segment_bt: jax.Array,
        expert_btlk: jax.Array | None = None,
    ) -> jax.Array:
        """h_btd after the final norm, in compute dtype.

        Args:
          token_bt: int32 ids.
          position_bt: int32 positions, from 0 in each segment.
          segment_bt: int32; attention is causal within equal non-zero segments, 0 is padding,
            whose outputs are finite and mean nothing.
          expert_btlk: experts to take in each layer, -1 = the router's own choice; None = all are.
        """
        graph, stacked = nnx.split(self.layers)

        def body(h_btd, xs):
            layer, expert_btk = xs
            h_btd = nnx.merge(graph, layer)(h_btd, position_bt, segment_bt, expert_btk)
            return sharding.constrain(h_btd, "batch", "length", None), None

        if self.remat:
            body = jax.checkpoint(body, prevent_cse=False)
        elif not self.config.experts:
            # Attention and what is computed per element costs less time again than memory kept.
            policies = jax.checkpoint_policies
            policy = policies.save_from_both_policies(
                policies.dots_with_no_batch_dims_saveable,
                policies.save_only_these_names(attention.RESIDUAL),
            )
            body = jax.checkpoint(body, prevent_cse=False, policy=policy)
        h_btd = sharding.constrain(self.embed(token_bt), "batch", "length", None)
        expert_lbtk = None if expert_btlk is None else jnp.moveaxis(expert_btlk, 2, 0)
        h_btd, _ = jax.lax.scan(body, h_btd, (stacked, expert_lbtk))
        return self.final_norm(h_btd)

    def head(self) -> jax.Array:
        """w_vd in parameter dtype: the embedding matrix if tied. Logits are ``h_btd @ w_vd.T``."""
        return (self.embedding if self.config.tied else self.output)[...]

    def layer(self, index: int) -> Block:
        """One layer with its own weights, for code that unrolls the layers."""
        graph, stacked = nnx.split(self.layers)
        return nnx.merge(graph, jax.tree.map(lambda weight: weight[index], stacked))

    def embed(self, token_bt: jax.Array) -> jax.Array:
        """h_btd in compute dtype."""
        # Gathering the table over fsdp first is one all-gather; looked up while split on the model
        # axis, the partitioner would replicate the activations.
        table_vd = sharding.constrain(self.embedding[...], "vocabulary", None)
        return table_vd[token_bt].astype(self.dtype)

    def final_norm(self, h_btd: jax.Array) -> jax.Array:
        """The norm before the head."""
        return _rms_norm(h_btd, self.norm, self.config.rms_epsilon)


def abstract(config: ModelConfig, settings: settings_.Model, remat: bool = False) -> Transformer:
    """The model with shapes for weights, made in no time and no memory."""
    return nnx.eval_shape(lambda: Transformer(config, settings, 0, remat))


def build(
    config: ModelConfig,
    settings: settings_.Model,
    seed: int,
    remat: bool = False,
    mesh: jax.sharding.Mesh | None = None,
) -> Transformer:
    """A model with random weights: normal matrices of std ``initial_std``, unit norms, no biases.

    Args:
      remat: recompute each layer in the backward pass.
      mesh: where weights are made, each device its own part; None is the default device.
    """
    graph, shapes = nnx.split(abstract(config, settings, remat))
    make = jax.jit(
        lambda: nnx.state(Transformer(config, settings, seed, remat)),
        out_shardings=None if mesh is None else sharding.shardings(shapes, mesh),
    )
    return nnx.merge(graph, make())


@jax.custom_vjp
def _product(x_btd: jax.Array, w_dx: jax.Array) -> jax.Array:
    """x_btd @ w_dx, ``x`` being one or more axes; the gradient of ``w_dx`` is made as x^T g.

    Autodiff would make (g^T x)^T, and XLA's CPU backend would transpose ``g`` together with all
    elementwise work that makes it, against the grain.
    """
    return jnp.tensordot(x_btd, w_dx, 1)


def _product_backward(
    saved: tuple[jax.Array, jax.Array], g_btx: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x_btd, w_dx = saved
    axes = [list(range(first, first + w_dx.ndim - 1)) for first in (2, 1)]
    return jnp.tensordot(g_btx, w_dx, axes), jnp.tensordot(x_btd, g_btx, ((0, 1), (0, 1)))


_product.defvjp(
    lambda x_btd, w_dx: (jnp.tensordot(x_btd, w_dx, 1), (x_btd, w_dx)), _product_backward
)


def _rms_norm(x: jax.Array, scale: nnx.Param, epsilon: float) -> jax.Array:
    """RMSNorm over the last axis in float32 (Zhang and Sennrich 2019); x's dtype."""
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + epsilon)
    return (x32 * scale[...].astype(jnp.float32)).astype(x.dtype)

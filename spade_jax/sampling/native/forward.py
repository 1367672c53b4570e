"""What runs on the device: prefill and decode over a paged KV cache.

Axes beyond the project's: ``r`` row of a prefill, ``p`` page of a sequence, ``n`` cached position
of a sequence, ``s`` step of a decode call, ``c`` head channel, ``g`` query heads of one kv head.

The cache is one pool of pages a layer. A call gathers the pages its rows need into contiguous
arrays once, which many steps then read, keeps what it computes apart, and scatters that into the
pool at its end. Attention so has two parts, *cached* and *fresh* keys, under one softmax.
"""

import dataclasses
import functools
import typing

import jax
import jax.numpy as jnp
from flax import nnx

from spade_jax.models import sharding
from spade_jax.models.transformer import Block, Transformer
from spade_jax.sampling.native.draw import Array, Draw, draw

KV = tuple[jax.Array, jax.Array]
Cached = tuple[jax.Array, ...]  # keys, values and, where experts are recorded, their ids
Pools = list[Cached]
"""One a layer: k and v [pages, page size, kv heads, channels], ids int16 [pages, page size, k].

Ids lie in pages beside keys and values, so whatever is shared, copied, kept or computed again has
the right ones."""
POOL_AXES = (None, None, "kv_heads", None)


class Weights(typing.NamedTuple):
    """Parameters as decoding reads them: one tree a layer, since slicing stacked ones copies.

    Matrices and biases are in compute dtype, to which the model would cast them at every use.
    """

    outer: nnx.State
    layers: list[nnx.State]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Prefill:
    """Prompt tokens whose keys and values are wanted.

    Attributes:
      token_rt: int32 ids, left-aligned.
      count_r: int32, how many are real.
      start_r: int32, positions of the row that are cached already.
      page_rp: int32 pages that hold them, for the first ``p`` pages of the sequence.
      write_rt: int32 place in the flattened pool for each token; past its end = nowhere.
    """

    token_rt: Array
    count_r: Array
    start_r: Array
    page_rp: Array
    write_rt: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Decode:
    """Sequences of which all but the last token is cached.

    Attributes:
      token_b: int32, that last token.
      start_b: int32, its position = positions cached.
      limit_b: int32, tokens to draw at most in this call; 0 = no sequence in this row.
      page_bp, write_bs: as in Prefill.
      stop_bm: int32 ids that end the row, padded with -1.
      how: how to draw.
    """

    token_b: Array
    start_b: Array
    limit_b: Array
    page_bp: Array
    write_bs: Array
    stop_bm: Array
    how: Draw


@dataclasses.dataclass(frozen=True)
class Forward:
    """Prefill and decode of one architecture; equal ones share what is compiled.

    Attributes:
      graph: of the whole model; ``outer`` of the model without its layers, ``block`` of a layer.
      page_size: tokens of a page.
      recorded: experts of a token that are kept in each layer; 0 = none.
    """

    graph: nnx.GraphDef
    outer: nnx.GraphDef
    block: nnx.GraphDef
    layers: int
    kv_heads: int
    channels: int
    dtype: jnp.dtype
    page_size: int
    recorded: int

    @classmethod
    def of(
        cls, graph: nnx.GraphDef, params: typing.Any, page_size: int, record: bool = False
    ) -> "Forward":
        """From ``nnx.split(model)``; of the parameters only the shapes are read.

        ``record``: keep the ids of the experts of each token, if there are any.
        """

        def kv_of_one(params):
            model = nnx.merge(graph, params)
            position = jnp.zeros((1, 1), jnp.int32)
            return model.layer(0).qkv(model.embed(position), position)[1]

        k_btkc = jax.eval_shape(kv_of_one, params)
        model = nnx.merge(graph, params)
        block, layers = nnx.split(model.layers)[0], model.config.layers
        outer = nnx.split(_without_layers(model))[0]
        kv_heads, channels = k_btkc.shape[2:]
        config, dtype = model.config, k_btkc.dtype
        recorded = config.experts_per_token if record and config.experts else 0
        return cls(graph, outer, block, layers, kv_heads, channels, dtype, page_size, recorded)

    def token_bytes(self, tensor: int = 1) -> int:
        """Bytes of cache that one position takes in all layers, of ``tensor`` devices on each."""
        heads = 2 * self.kv_heads * self.channels * self.dtype.itemsize // tensor
        return self.layers * (heads + 2 * self.recorded)

    def pools(self, pages: int) -> Pools:
        """Empty cache, on the mesh of ``jax.set_mesh`` where one is set."""
        shape = (pages, self.page_size, self.kv_heads, self.channels)
        return [self._pool(shape) for _ in range(self.layers)]

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def _pool(self, shape: tuple[int, ...]) -> Cached:
        k, v = (_in_pool(jnp.zeros(shape, self.dtype)) for _ in range(2))
        if not self.recorded:
            return k, v
        return k, v, _in_pool(jnp.zeros((*shape[:2], self.recorded), jnp.int16))

    @functools.partial(jax.jit, static_argnums=0)
    def weights(self, params: typing.Any) -> Weights:
        """A copy of the parameters in the form that decoding reads."""
        return self.cut(params)

    def cut(self, params: typing.Any) -> Weights:
        """:meth:`weights`, for a ``jit`` of the caller's own."""
        model = nnx.merge(self.graph, params)
        layers = [nnx.split(model.layer(index))[1] for index in range(self.layers)]
        outer = nnx.split(_without_layers(model))[1]
        cast = Weights(self._cast(outer), [self._cast(layer) for layer in layers])
        return Weights(jax.tree.map(jnp.copy, cast.outer), cast.layers)

    def _cast(self, state: nnx.State) -> nnx.State:
        """In compute dtype, but for what the model uses in float32: norms and the router."""

        def cast(path, variable):
            if path[-1] == "router" or str(path[-1]).endswith("norm"):
                return variable
            return variable.replace(variable.get_value().astype(self.dtype))

        return nnx.from_flat_state([(p, cast(p, v)) for p, v in nnx.to_flat_state(state)])

    def _ids(self, expert_btk: jax.Array | None) -> list[jax.Array]:
        """What is kept of the experts of a layer, beside its keys and values."""
        if expert_btk is None or not self.recorded:
            return []
        return [expert_btk.astype(jnp.int16)]

    def _model(self, weights: Weights) -> tuple[Transformer, list[Block]]:
        return (
            nnx.merge(self.outer, weights.outer),
            [nnx.merge(self.block, layer) for layer in weights.layers],
        )

    @functools.partial(jax.jit, static_argnums=0, donate_argnames="pools")
    def copy(self, pools: Pools, from_p: Array, to_p: Array) -> Pools:
        """The pools with some pages copied to others; a place past the end is nowhere."""
        return jax.tree.map(lambda x: _in_pool(x.at[to_p].set(x[from_p], mode="drop")), pools)

    @functools.partial(jax.jit, static_argnums=0)
    def experts(self, pools: Pools, page_p: Array) -> jax.Array:
        """Ids int16 [positions of the pages, layers, k] of the experts recorded."""
        parts = [ids[page_p].reshape(-1, self.recorded) for *_, ids in pools]
        return sharding.constrain(jnp.stack(parts, axis=1), None, None, None)

    @functools.partial(jax.jit, static_argnums=0, donate_argnames="pools")
    def prefill(self, weights: Weights, pools: Pools, batch: Prefill) -> Pools:
        """The pools with the keys and values of the batch's tokens."""
        model, blocks = self._model(weights)
        step_t = jnp.arange(batch.token_rt.shape[1])
        valid_rt = step_t < batch.count_r[:, None]
        position_rt = batch.start_r[:, None] + step_t
        fresh_tt = step_t[:, None] >= step_t

        def forward(cached):
            h_rtd = _everywhere(model.embed(batch.token_rt))
            fresh = []
            for block, old in zip(blocks, cached, strict=True):
                q_rthc, k, v = block.qkv(h_rtd, position_rt)
                new = k.transpose(0, 2, 3, 1), v.swapaxes(1, 2)
                o_rthc = _attend(q_rthc, old, batch.start_r, new, fresh_tt)
                h_rtd = _everywhere(block.attention_output(h_rtd, o_rthc))
                h_rtd, expert_rtk = block.feed_forward(h_rtd, valid_rt)
                h_rtd = _everywhere(h_rtd)
                fresh.append((*new, *self._ids(expert_rtk)))
            return fresh

        def nothing(_):
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        # A branch of its own, so that pools are written after all were read: left to order reads
        # and writes itself, XLA's CPU backend copies the pools whole to be safe.
        cached = [_gather(pool, batch.page_rp) for pool in pools]
        shapes = jax.eval_shape(forward, cached)
        fresh = jax.lax.cond(valid_rt.any(), forward, nothing, cached)
        return [_scatter(pool, new, batch.write_rt) for pool, new in zip(pools, fresh, strict=True)]

    @functools.partial(jax.jit, static_argnums=0, donate_argnames="pools")
    def decode(
        self, weights: Weights, pools: Pools, batch: Decode
    ) -> tuple[Pools, jax.Array, jax.Array, jax.Array]:
        """Draws until every row has stopped or has its limit.

        Returns:
          pools, token_bs int32, logp_bs float32, count_b int32 tokens drawn.
        """
        model, blocks = self._model(weights)
        head_vd = model.head()
        rows, steps = batch.write_bs.shape
        cached = [_gather(pool, batch.page_bp) for pool in pools]
        v = jnp.zeros((rows, self.kv_heads, steps, self.channels), self.dtype)
        empty: Cached = (v.swapaxes(2, 3), v)
        if self.recorded:
            empty += (jnp.zeros((rows, steps, self.recorded), jnp.int16),)

        def step(carry):
            s, token_b, live_b, count_b, fresh, token_bs, logp_bs = carry
            position_b1 = (batch.start_b + s)[:, None]
            h_b1d = _everywhere(model.embed(token_b[:, None]))
            seen_1s = (jnp.arange(steps) <= s)[None]
            written = []
            for block, old, new in zip(blocks, cached, fresh, strict=True):
                q_b1hc, k, v = block.qkv(h_b1d, position_b1)
                k_bkc1, v_bk1c = k.transpose(0, 2, 3, 1), v.swapaxes(1, 2)
                kv = _put(new[0], k_bkc1, s, 3), _put(new[1], v_bk1c, s, 2)
                o_b1hc = _attend(q_b1hc, old, batch.start_b, kv, seen_1s)
                h_b1d = _everywhere(block.attention_output(h_b1d, o_b1hc))
                h_b1d, expert_b1k = block.feed_forward(h_b1d, live_b[:, None])
                h_b1d = _everywhere(h_b1d)
                ids = [_put(new[2], x_b1k, s, 1) for x_b1k in self._ids(expert_b1k)]
                written.append((*kv, *ids))
            h_bd = model.final_norm(h_b1d)[:, 0]
            logit_bv = jnp.einsum(
                "bd,vd->bv", h_bd, head_vd.astype(h_bd.dtype), preferred_element_type=jnp.float32
            )
            drawn_b, logp_b = draw(logit_bv, position_b1[:, 0] + 1, batch.how)
            token_bs = _put(token_bs, drawn_b[:, None], s, 1)
            logp_bs = _put(logp_bs, logp_b[:, None], s, 1)
            count_b += live_b
            stopped_b = (drawn_b[:, None] == batch.stop_bm).any(-1) | (count_b >= batch.limit_b)
            return s + 1, drawn_b, live_b & ~stopped_b, count_b, written, token_bs, logp_bs

        carry = (
            jnp.int32(0),
            jnp.asarray(batch.token_b),
            batch.limit_b > 0,
            jnp.zeros(rows, jnp.int32),
            [empty for _ in blocks],
            jnp.zeros((rows, steps), jnp.int32),
            jnp.zeros((rows, steps), jnp.float32),
        )
        carry = jax.lax.while_loop(lambda c: (c[0] < steps) & c[2].any(), step, carry)
        _, _, _, count_b, fresh, token_bs, logp_bs = carry
        pools = [
            _scatter(pool, new, batch.write_bs) for pool, new in zip(pools, fresh, strict=True)
        ]
        # Whole everywhere: each process reads its own copy.
        token_bs, logp_bs = (sharding.constrain(x, None, None) for x in (token_bs, logp_bs))
        return pools, token_bs, logp_bs, sharding.constrain(count_b, None)


def _without_layers(model: Transformer) -> Transformer:
    del model.layers
    return model


def _everywhere(h_btd: jax.Array) -> jax.Array:
    """Hidden states whole on every device: their rows are too few to split."""
    return sharding.constrain(h_btd, None, None, None)


def _put(x: jax.Array, new: jax.Array, step: jax.Array, axis: int) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(x, new, step, axis)


def _in_pool(x: jax.Array) -> jax.Array:
    """An array of the cache where it belongs: keys and values over their heads, ids everywhere."""
    return sharding.constrain(x, *(POOL_AXES if x.ndim == len(POOL_AXES) else [None] * x.ndim))


def _gather(pool: Cached, page_bp: Array) -> KV:
    """Keys and values of each row's pages as k_bkcn, v_bknc."""
    rows = len(page_bp)
    kv_heads, channels = pool[0].shape[2:]
    k_bkcn = pool[0][page_bp].transpose(0, 3, 4, 1, 2).reshape(rows, kv_heads, channels, -1)
    v_bknc = pool[1][page_bp].transpose(0, 3, 1, 2, 4).reshape(rows, kv_heads, -1, channels)
    return (
        sharding.constrain(k_bkcn, None, "kv_heads", None, None),
        sharding.constrain(v_bknc, None, "kv_heads", None, None),
    )


def _scatter(pool: Cached, fresh: Cached, write_bs: Array) -> Cached:
    """The pool with the fresh k_bkcs, v_bksc and ids_bsk at their places; those past the end are
    dropped."""

    def put(x, new):
        flat = x.reshape(-1, *x.shape[2:])
        return _in_pool(flat.at[write_bs].set(new, mode="drop").reshape(x.shape))

    fresh = (fresh[0].transpose(0, 3, 1, 2), fresh[1].swapaxes(1, 2), *fresh[2:])
    return tuple(put(x, new) for x, new in zip(pool, fresh, strict=True))


def _attend(
    q_bthc: jax.Array, cached: KV, start_b: Array, fresh: KV, fresh_ts: jax.Array
) -> jax.Array:
    """Grouped-query attention over cached and fresh keys, softmax in float32.

    Keys and values lie as the matrix product of one head reads them, keys transposed: in any other
    order XLA's CPU backend would copy them at every step, which takes up to ten times as long.

    Args:
      cached, fresh: k_bkcn, v_bknc.
      start_b: cached positions of each row that count.
      fresh_ts: bool, which fresh positions each query sees; the same for all rows.
    """
    rows, queries, heads, channels = q_bthc.shape
    kv_heads, _, length = cached[0].shape[1:]
    group = heads // kv_heads
    q_btkgc = q_bthc.reshape(rows, queries, kv_heads, group, channels) * channels**-0.5
    q_bkmc = q_btkgc.transpose(0, 2, 3, 1, 4).reshape(rows, kv_heads, group * queries, channels)

    def scores(k_bkcn, mask_btn):
        s = jnp.einsum("bkmc,bkcn->bkmn", q_bkmc, k_bkcn, preferred_element_type=jnp.float32)
        mask_bkmn = jnp.tile(mask_btn, (1, group, 1))[:, None]
        return jnp.where(mask_bkmn, s, -1e30)

    def values(weight_bkmn, v_bknc):
        return jnp.einsum("bkmn,bknc->bkmc", weight_bkmn, v_bknc)

    old_bn = jnp.arange(length) < start_b[:, None]
    old_btn = jnp.broadcast_to(old_bn[:, None], (rows, queries, length))
    score_bkmn = jnp.concatenate(
        [scores(cached[0], old_btn), scores(fresh[0], fresh_ts[None])], axis=-1
    )
    weight_bkmn = jax.nn.softmax(score_bkmn, axis=-1).astype(q_bthc.dtype)
    o_bkmc = values(weight_bkmn[..., :length], cached[1])
    o_bkmc += values(weight_bkmn[..., length:], fresh[1])
    o_bkgtc = o_bkmc.reshape(rows, kv_heads, group, queries, channels)
    return o_bkgtc.transpose(0, 3, 1, 2, 4).reshape(q_bthc.shape)

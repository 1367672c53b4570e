"""Dropless experts: tokens grouped by expert, one grouped matmul a projection.

Axes: ``n`` token, ``k`` choice of a token, ``m`` = n * k copy of a token, ``p`` row of the grouped
order, ``e`` expert. The kernels, chosen by a setting:

* ``ragged_dot``: ``jax.lax.ragged_dot``, portable, the oracle. XLA's CPU backend (and some GPU
  versions) multiplies every row by every expert.
* ``blocks``: each expert's rows are padded to whole blocks and the blocks multiplied as a batch.
  Work is that of the chosen experts; it copies an expert's weights once a block, so it is for few
  or small experts, on CPU. Of few tokens, as when sampling, each expert gets equally many rows, as
  many as the busiest needs: that copies no weights.
* ``gmm``: the megablox Pallas kernel of the TPU; ``gmm_interpret`` runs it anywhere, for tests.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from spade_jax.models import sharding

_BLOCK = 256
_GMM_TILE = 128
_FEW = 512
"""Tokens, up to which copying the weights would cost more than idle rows do."""


def route(
    h_btd: jax.Array,
    router_de: jax.Array,
    experts_per_token: int,
    renormalise: bool,
    replayed_btk: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Weights float32 [b, t, k] and ids int32 [b, t, k] of the experts of each token.

    Args:
      replayed_btk: ids to take instead of the likeliest, any integer dtype; -1 = the likeliest.
    """
    logit_bte = jnp.matmul(
        h_btd.astype(jnp.float32), router_de.astype(jnp.float32), precision="highest"
    )
    prob_bte = jax.nn.softmax(logit_bte)
    weight_btk, expert_btk = jax.lax.top_k(prob_bte, experts_per_token)
    if replayed_btk is not None:
        expert_btk = jnp.where(replayed_btk < 0, expert_btk, replayed_btk.astype(jnp.int32))
        weight_btk = jnp.take_along_axis(prob_bte, expert_btk, axis=-1)
    if renormalise:
        weight_btk /= weight_btk.sum(-1, keepdims=True)
    return weight_btk, expert_btk


def mixture(
    h_btd: jax.Array,
    weight_btk: jax.Array,
    expert_btk: jax.Array,
    gate_edf: jax.Array,
    up_edf: jax.Array,
    down_efd: jax.Array,
    kernel: str,
) -> jax.Array:
    """:func:`experts` of every token, over the mesh of ``jax.set_mesh`` where one is set.

    On a mesh, tokens are gathered over the ``expert`` axis, each device applies the experts it
    holds, and the sums are scattered back: nothing is dropped and all shapes are static. Rows ``b``
    that do not divide over data * fsdp * expert (few, when sampling) are whole on every device, and
    sums are added up instead. ``t`` must divide over context.

    Returns:
      o_btd, float32.
    """
    matrices = (gate_edf, up_edf, down_efd)

    def local(h_btd, weight_btk, expert_btk, *matrices):
        h_nd, weight_nk, expert_nk = (
            x.reshape(-1, x.shape[-1]) for x in (h_btd, weight_btk, expert_btk)
        )
        gate_edf, up_edf, down_efd = matrices
        o_nd = experts(h_nd, weight_nk, expert_nk, gate_edf, up_edf, down_efd, kernel)
        return o_nd.reshape(h_btd.shape)

    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return local(h_btd, weight_btk, expert_btk, *matrices)
    spread = len(h_btd) % sharding.ways(mesh, "batch") == 0

    def ring(h_btd, weight_btk, expert_btk, *matrices):
        tokens = [h_btd, weight_btk, expert_btk]
        if spread:
            tokens = [jax.lax.all_gather(x, "expert", axis=0, tiled=True) for x in tokens]
        h_btd, weight_btk, expert_btk = tokens
        first = jax.lax.axis_index("expert") * matrices[0].shape[0]
        o_btd = jax.lax.psum(local(h_btd, weight_btk, expert_btk - first, *matrices), "tensor")
        if not spread:
            return jax.lax.psum(o_btd, "expert")
        return jax.lax.psum_scatter(o_btd, "expert", scatter_dimension=0, tiled=True)

    tokens = sharding.spec("batch" if spread else None, "length", None)
    into, out_of = (
        PartitionSpec("expert", None, "tensor"),
        PartitionSpec("expert", "tensor", None),
    )
    return jax.shard_map(
        ring,
        in_specs=(tokens, tokens, tokens, into, into, out_of),
        out_specs=tokens,
        check_vma=False,
    )(h_btd, weight_btk, expert_btk, *matrices)


def experts(
    h_nd: jax.Array,
    weight_nk: jax.Array,
    expert_nk: jax.Array,
    gate_edf: jax.Array,
    up_edf: jax.Array,
    down_efd: jax.Array,
    kernel: str,
) -> jax.Array:
    """Weighted sum of each token's SwiGLU experts.

    An id that is not in [0, experts) belongs to no expert here: it costs no matmul and adds
    nothing. That is how padding, and tokens of experts held elsewhere, are left out.

    Returns:
      o_nd, float32.
    """
    k, count = expert_nk.shape[1], gate_edf.shape[0]
    expert_m = jnp.where((expert_nk >= 0) & (expert_nk < count), expert_nk, count).reshape(-1)
    size_e = jnp.bincount(expert_m, length=count)

    def chosen(grouping: _Grouping, matmul: Callable[[jax.Array, jax.Array], jax.Array]) -> Any:
        x_pd = _spread(h_nd, grouping.source_p, grouping.row_m, k)
        a_pf = jax.nn.silu(matmul(x_pd, gate_edf)) * matmul(x_pd, up_edf)
        y_md = _unsort(matmul(a_pf, down_efd), grouping.source_p, grouping.row_m)
        y_nkd = y_md.reshape(*expert_nk.shape, -1).astype(jnp.float32)
        return jnp.einsum("nkd,nk->nd", y_nkd, weight_nk)

    def of_equal_shares(share: int) -> Any:
        grouping = _group(expert_m, size_e, jnp.full(count, share), count * share)

        def matmul(x_pd: jax.Array, w_edf: jax.Array) -> jax.Array:
            x_esd = x_pd.reshape(count, share, -1)
            return jnp.einsum("esd,edf->esf", x_esd, w_edf).reshape(len(x_pd), -1)

        return chosen(grouping, matmul)

    if kernel == "blocks" and len(h_nd) <= _FEW:
        shares = _shares(len(h_nd), k, count)
        rung = jnp.searchsorted(jnp.array(shares), size_e.max())
        return jax.lax.switch(rung, [functools.partial(of_equal_shares, s) for s in shares])

    block = _block_size(len(expert_m), count) if kernel == "blocks" else 1
    multiple = _GMM_TILE if kernel.startswith("gmm") else block
    grouping = _group_in_blocks(expert_m, size_e, block, multiple)

    def matmul(x_pd: jax.Array, w_edf: jax.Array) -> jax.Array:
        if kernel == "ragged_dot":
            return jax.lax.ragged_dot(x_pd, w_edf, grouping.size_e)
        if kernel == "blocks":
            x_qbd = x_pd.reshape(-1, block, x_pd.shape[-1])
            w_qdf = _weights_of_blocks(w_edf, grouping.expert_p[::block])
            return jnp.einsum("qbd,qdf->qbf", x_qbd, w_qdf).reshape(len(x_pd), -1)
        return _gmm(x_pd, w_edf, grouping.size_e, interpret=kernel == "gmm_interpret")

    return chosen(grouping, matmul)


@dataclasses.dataclass(frozen=True)
class _Grouping:
    """Where each copy of a token goes.

    ``source_p``: copy held by a row, m (one past the last) if none. ``row_m``: row of a copy, p if
    none. ``expert_p``: expert of a row, a valid id also where the row is empty. ``size_e``: rows of
    each expert, padding included; experts follow one another from row 0.
    """

    source_p: jax.Array
    row_m: jax.Array
    expert_p: jax.Array
    size_e: jax.Array


def _group_in_blocks(
    expert_m: jax.Array, size_e: jax.Array, block: int, multiple: int
) -> _Grouping:
    """Each expert's rows padded to whole blocks, and all rows to ``multiple``."""
    copies = len(expert_m)
    rows = copies if block == 1 else (copies // block + len(size_e)) * block
    rows = -(-rows // multiple) * multiple
    return _group(expert_m, size_e, -(-size_e // block) * block, rows)


def _group(expert_m: jax.Array, size_e: jax.Array, padded_e: jax.Array, rows: int) -> _Grouping:
    """Stable order by expert, ``padded_e`` rows for each; the id after the last has no row."""
    copies, count = len(expert_m), len(size_e)
    order_m = jnp.argsort(expert_m)
    rank_m = jnp.argsort(order_m)
    first_e, start_e = jnp.cumsum(size_e) - size_e, jnp.cumsum(padded_e) - padded_e
    row_p = jnp.arange(rows)
    expert_p = jnp.searchsorted(jnp.cumsum(padded_e), row_p, side="right")
    expert_p = jnp.minimum(expert_p, count - 1)
    offset_p = row_p - start_e[expert_p]
    source_p = order_m.at[first_e[expert_p] + offset_p].get(mode="clip")
    source_p = jnp.where(offset_p < size_e[expert_p], source_p, copies)
    expert_m_or_last = jnp.minimum(expert_m, count - 1)
    row_m = start_e[expert_m_or_last] + rank_m - first_e[expert_m_or_last]
    return _Grouping(source_p, jnp.where(expert_m < count, row_m, rows), expert_p, padded_e)


def _shares(tokens: int, k: int, count: int) -> list[int]:
    """Rows an expert, ascending: for experts chosen about equally, less so, and all tokens one."""
    mean = tokens * k / count
    return sorted(
        {min(tokens, 8 * math.ceil(times * mean / 8)) for times in (1.5, 2, 3, count / k)}
    )


def _block_size(copies: int, count: int) -> int:
    """Large enough for a good matmul, small enough that padding is a fraction of the rows."""
    return int(np.clip(2 ** int(np.ceil(np.log2(max(copies / (4 * count), 1)))), 8, _BLOCK))


# Moving copies to rows and back are each other's transpose, and each row holds at most one copy:
# saying so keeps backward passes gathers, where XLA would emit a slow scatter-add.
@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _spread(h_nd: jax.Array, source_p: jax.Array, row_m: jax.Array, k: int) -> jax.Array:
    """x_pd: the token of each row, 0 where the row is empty."""
    return h_nd.at[source_p // k].get(mode="fill", fill_value=0)


@jax.custom_vjp
def _unsort(y_pd: jax.Array, source_p: jax.Array, row_m: jax.Array) -> jax.Array:
    """y_md: the row of each copy, 0 for a copy without row."""
    return y_pd.at[row_m].get(mode="fill", fill_value=0)


@jax.custom_vjp
def _weights_of_blocks(w_edf: jax.Array, expert_q: jax.Array) -> jax.Array:
    return w_edf[expert_q]


def _spread_backward(k, saved, g_pd):
    source_p, row_m = saved
    return _unsort(g_pd, source_p, row_m).reshape(-1, k, g_pd.shape[-1]).sum(1), None, None


def _unsort_backward(saved, g_md):
    source_p, row_m = saved
    return _spread(g_md, source_p, row_m, 1), None, None


def _weights_of_blocks_backward(saved, g_qdf):
    expert_q, count = saved
    hot_qe = jax.nn.one_hot(expert_q, count, dtype=g_qdf.dtype)
    return jnp.einsum("qe,qdf->edf", hot_qe, g_qdf), None


_spread.defvjp(
    lambda h, source, row, k: (_spread(h, source, row, k), (source, row)), _spread_backward
)
_unsort.defvjp(lambda y, source, row: (_unsort(y, source, row), (source, row)), _unsort_backward)
_weights_of_blocks.defvjp(
    lambda w, expert: (_weights_of_blocks(w, expert), (expert, w.shape[0])),
    _weights_of_blocks_backward,
)


def _gmm(x_pd: jax.Array, w_edf: jax.Array, size_e: jax.Array, interpret: bool) -> jax.Array:
    """Rows past the last expert are left uninitialised by this kernel; nothing reads them."""
    from jax.experimental.pallas.ops.tpu.megablox import gmm

    tiling = (_GMM_TILE, min(x_pd.shape[1], 1024), min(w_edf.shape[2], 1024))
    return gmm(
        x_pd, w_edf, size_e.astype(jnp.int32), x_pd.dtype, tiling=tiling, interpret=interpret
    )

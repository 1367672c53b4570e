"""One optimizer step from a list of trajectories."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from spade_jax import config
from spade_jax.learner import loss, optimizer
from spade_jax.learner.logprobs import target_logp
from spade_jax.learner.metrics import policy_metrics
from spade_jax.learner.packing import Batch, Trajectory, pack
from spade_jax.models.transformer import Transformer

BATCH_AXES = ("data", "fsdp")
"""Mesh axes over which the rows of a micro-batch are spread."""


class Learner:
    """Parameters, optimizer state and the compiled steps that change them.

    The arrays of ``params`` are donated: after :meth:`update` or :meth:`supervise` those read
    before are gone. A sampler takes the new ones.

    Args:
      model: the initial policy, and the reference if ``settings.kl_coefficient`` is not 0.
      settings: the learner's section of the configuration.
      group_names: names of the groups that trajectories refer to by index.
      mesh: where to compute; None is the default device. ``settings.rows`` must be a multiple of
        the devices along the axes :data:`BATCH_AXES`.
      shardings: tree of shardings for the parameters on ``mesh``.
    """

    def __init__(
        self,
        model: Transformer,
        settings: config.Learner,
        group_names: Sequence[str],
        mesh: jax.sharding.Mesh | None = None,
        shardings: Any = None,
    ) -> None:
        self._settings, self._names = settings, tuple(group_names)
        graph, params = nnx.split(model)
        self._batch_sharding, shards = _spread_rows(mesh, settings.rows)
        self._passes = _Passes(graph, shards)
        if shardings is None:
            shardings = jax.tree.map(lambda p: p.sharding, params)
        # Copies: the caller's model must survive the donation of these.
        self.params = _copy(params, shardings)
        self._optimizer = optimizer.init(self.params)
        self._reference = _copy(params, shardings) if settings.kl_coefficient else None

    def update(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """One policy-gradient step; its metrics, all finite.

        A trajectory whose advantage is 0 has no gradient if KL and entropy have no coefficient:
        it keeps its share of the mean, but no pass is run and its tokens are not in the metrics.
        Without any trained token nothing happens.

        Raises:
          ValueError: a trajectory cannot be learnt from.
          FloatingPointError: the gradient is not finite; nothing has changed.
        """
        settings = self._settings
        rate = optimizer.warm_rate(settings, self.updates)
        passed = trajectories
        if not settings.kl_coefficient and not settings.entropy_coefficient:
            passed = [t if t.advantage else _untrained(t) for t in trajectories]
        batches, outputs, metrics = self._step(trajectories, passed, _policy_loss, rate)
        return metrics | policy_metrics(batches, outputs, self._names, settings.importance_cap)

    def supervise(
        self, trajectories: Sequence[Trajectory], learning_rate: float
    ) -> dict[str, float]:
        """One step of supervised learning on the trained tokens; ``loss`` is nats per token.

        Advantages and sampler log-probs are not used. Raises as :meth:`update`.
        """
        return self._step(trajectories, trajectories, _supervised_loss, learning_rate)[2]

    @property
    def updates(self) -> int:
        """Optimizer steps made so far."""
        return int(self._optimizer.count)

    @property
    def state(self) -> Any:
        """Pytree of arrays that a checkpoint carries: parameters and optimizer state.

        The reference is not in it: it is the initial model, which a resumed run builds again.
        """
        return {"params": self.params, "optimizer": self._optimizer}

    @state.setter
    def state(self, state: Any) -> None:
        self.params, self._optimizer = state["params"], state["optimizer"]

    def _step(
        self,
        trajectories: Sequence[Trajectory],
        passed: Sequence[Trajectory],
        objective: Any,
        learning_rate: float,
    ) -> tuple[list[list[Batch]], list[list[dict[str, np.ndarray]]], dict[str, float]]:
        """Micro-batches of ``passed``, what the passes gave for them, and metrics."""
        batches = pack(passed, self._settings.row_length, self._settings.rows, len(self._names))
        settings, total, norms, outputs = self._settings, _zeros(self.params), [], []
        for group in batches:
            outputs.append([])
            if not group:
                norms.append(np.float32(0))
                continue
            grads = _zeros(self.params)
            for batch in group:
                placed = jax.device_put(batch, self._batch_sharding)
                grads, output = _accumulate(
                    objective, self._passes, settings, self.params, self._reference, grads, placed
                )
                outputs[-1].append(output)
            total, group_norm = _add_group(settings, total, grads)
            norms.append(group_norm)
        norm = np.float32(0)
        if any(t.weight and any(t.trained) for t in trajectories):
            rate = jax.device_put(np.float32(learning_rate))
            self.params, self._optimizer, norm = _apply(
                settings, self.params, self._optimizer, total, rate
            )
        outputs, norms, norm = jax.device_get((outputs, norms, norm))  # the only wait
        self._require_finite(norms)
        losses = [output.pop("loss") for group in outputs for output in group]
        metrics = {"loss": float(np.sum(losses)), "grad_norm": float(norm)}
        for index, name in enumerate(self._names):
            metrics[f"grad_norm/{name}"] = float(norms[index])
            metrics[f"tokens/{name}"] = float(
                sum(len(t.tokens) for t in trajectories if t.group == index)
            )
        return batches, outputs, metrics

    def _require_finite(self, norms: list[np.ndarray]) -> None:
        for name, norm in zip(self._names, norms, strict=True):
            if not np.isfinite(norm):
                raise FloatingPointError(
                    f"group {name}: gradient norm is {norm}; parameters and optimizer are as "
                    "before. Look at this group's advantages, or resume an older checkpoint"
                )


class _Passes(NamedTuple):
    """What the passes over a micro-batch need to know of the model; hashable, hence static."""

    graph: Any
    shards: int

    def logp(self, params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Log-probs and entropies of the weighted predictions, float32 [b, t]."""
        model = nnx.merge(self.graph, params)
        h_btd = model.hidden(batch.token_bt, batch.position_bt, batch.segment_bt)
        return target_logp(
            h_btd,
            model.head().astype(h_btd.dtype),
            batch.target_bt,
            batch.temperature_bt,
            batch.loss_weight_bt > 0,
            self.shards,
        )


def _policy_loss(
    params: Any, reference: Any, batch: Batch, passes: _Passes, settings: config.Learner
) -> tuple[jax.Array, dict[str, jax.Array]]:
    logp_bt, entropy_bt = passes.logp(params, batch)
    output = {"logp": logp_bt, "entropy": entropy_bt}
    reference_logp_bt = None
    if reference is not None:
        reference_logp_bt, _ = passes.logp(reference, batch)
        output["kl"] = loss.k3(logp_bt, reference_logp_bt)
    old_logp_bt = jax.lax.stop_gradient(logp_bt)
    value = loss.policy_loss(logp_bt, old_logp_bt, entropy_bt, reference_logp_bt, batch, settings)
    return value, output | {"loss": value}


def _supervised_loss(
    params: Any, reference: Any, batch: Batch, passes: _Passes, settings: config.Learner
) -> tuple[jax.Array, dict[str, jax.Array]]:
    logp_bt, _ = passes.logp(params, batch)
    value = loss.supervised_loss(logp_bt, batch)
    return value, {"loss": value}


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=5)
def _accumulate(
    objective: Any,
    passes: _Passes,
    settings: config.Learner,
    params: Any,
    reference: Any,
    grads: Any,
    batch: Batch,
) -> tuple[Any, dict[str, jax.Array]]:
    """``grads`` and the gradient of one micro-batch, summed in float32."""
    new, output = jax.grad(objective, has_aux=True)(params, reference, batch, passes, settings)
    return jax.tree.map(lambda a, b: a + b.astype(jnp.float32), grads, new), output


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _add_group(settings: config.Learner, total: Any, grads: Any) -> tuple[Any, jax.Array]:
    """``total`` and the gradient of one group, and the norm of the latter."""
    norm = optimizer.global_norm(grads)
    if settings.role_weighting == "balanced":
        grads = optimizer.clip(grads, norm, settings.clip_norm)
    return jax.tree.map(jnp.add, total, grads), norm


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _apply(
    settings: config.Learner, params: Any, state: Any, grads: Any, learning_rate: jax.Array
) -> tuple[Any, Any, jax.Array]:
    """Parameters and state after a step, or as they were if the gradient is not finite."""
    norm = optimizer.global_norm(grads)
    if settings.role_weighting == "paper":
        grads = optimizer.clip(grads, norm, settings.clip_norm)
    params, state = jax.lax.cond(
        jnp.isfinite(norm),
        lambda: optimizer.adamw(params, grads, state, learning_rate, settings),
        lambda: (params, state),
    )
    return params, state, norm


@jax.jit
def _zeros(params: Any) -> Any:
    return jax.tree.map(lambda p: jnp.zeros_like(p, jnp.float32), params)


def _spread_rows(
    mesh: jax.sharding.Mesh | None, rows: int
) -> tuple[jax.sharding.Sharding | None, int]:
    """Sharding of a batch and the number of blocks its rows are in."""
    if mesh is None:
        return None, 1
    axes = tuple(axis for axis in BATCH_AXES if axis in mesh.shape)
    shards = int(np.prod([mesh.shape[axis] for axis in axes]))
    if rows % shards:
        raise ValueError(
            f"learner.rows = {rows} cannot be spread over the {shards} devices of mesh axes "
            f"{axes}; make it a multiple"
        )
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axes)), shards


def _copy(params: Any, shardings: Any) -> Any:
    return jax.tree.map(lambda p, s: jnp.copy(jax.device_put(p, s)), params, shardings)


def _untrained(trajectory: Trajectory) -> Trajectory:
    return dataclasses.replace(trajectory, trained=[False] * len(trajectory.tokens))

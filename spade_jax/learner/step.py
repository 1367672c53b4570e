"""One optimizer step from a list of trajectories."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

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
        self._graph, params = nnx.split(model)
        self._batch_sharding, self._shards = _spread_rows(mesh, settings.rows)
        if shardings is None:
            shardings = jax.tree.map(lambda p: p.sharding, params)
        # A copy: the caller's model must survive the donation of these.
        self.params = _copy(params, shardings)
        self._optimizer = optimizer.init(self.params)
        self._reference = _copy(params, shardings) if settings.kl_coefficient else None
        self._zeros = jax.jit(
            lambda p: jax.tree.map(lambda x: jnp.zeros_like(x, jnp.float32), p),
            out_shardings=shardings,
        )
        gradient = functools.partial(jax.jit, donate_argnames="grads")
        self._policy = gradient(functools.partial(self._accumulate, self._policy_loss))
        self._supervised = gradient(functools.partial(self._accumulate, self._supervised_loss))
        self._add = jax.jit(self._add_group, donate_argnums=(0, 1))
        self._apply = jax.jit(self._apply_update, donate_argnums=(0, 1))

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
        batches, outputs, metrics = self._step(trajectories, passed, self._policy, rate)
        return metrics | policy_metrics(batches, outputs, self._names, settings.importance_cap)

    def supervise(
        self, trajectories: Sequence[Trajectory], learning_rate: float
    ) -> dict[str, float]:
        """One step of supervised learning on the trained tokens; ``loss`` is nats per token.

        Advantages and sampler log-probs are not used. Raises as :meth:`update`.
        """
        return self._step(trajectories, trajectories, self._supervised, learning_rate)[2]

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
        gradient: Any,
        learning_rate: float,
    ) -> tuple[list[list[Batch]], list[list[dict[str, np.ndarray]]], dict[str, float]]:
        """Micro-batches of ``passed``, what the passes gave for them, and metrics."""
        batches = pack(passed, self._settings.row_length, self._settings.rows, len(self._names))
        total, norms, outputs = self._zeros(self.params), [], []
        for group in batches:
            outputs.append([])
            if not group:
                norms.append(np.float32(0))
                continue
            grads = self._zeros(self.params)
            for batch in group:
                placed = jax.device_put(batch, self._batch_sharding)
                grads, output = gradient(self.params, self._reference, grads=grads, batch=placed)
                outputs[-1].append(output)
            total, group_norm = self._add(total, grads)
            norms.append(group_norm)
        norm = np.float32(0)
        if any(t.weight and any(t.trained) for t in trajectories):
            rate = jax.device_put(np.float32(learning_rate))
            self.params, self._optimizer, norm = self._apply(
                self.params, self._optimizer, total, rate
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

    # What follows is traced.

    def _accumulate(
        self, objective: Any, params: Any, reference: Any, grads: Any, batch: Batch
    ) -> tuple[Any, dict[str, jax.Array]]:
        (value, output), new = jax.value_and_grad(objective, has_aux=True)(params, reference, batch)
        grads = jax.tree.map(lambda a, b: a + b.astype(jnp.float32), grads, new)
        return grads, output | {"loss": value}

    def _policy_loss(
        self, params: Any, reference: Any, batch: Batch
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        logp_bt, entropy_bt = self._logp(params, batch)
        output = {"logp": logp_bt, "entropy": entropy_bt}
        reference_logp_bt = None
        if reference is not None:
            reference_logp_bt, _ = self._logp(reference, batch)
            output["kl"] = loss.k3(logp_bt, reference_logp_bt)
        value = loss.policy_loss(
            logp_bt,
            jax.lax.stop_gradient(logp_bt),
            entropy_bt,
            reference_logp_bt,
            batch,
            self._settings,
        )
        return value, output

    def _supervised_loss(
        self, params: Any, reference: Any, batch: Batch
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        logp_bt, _ = self._logp(params, batch)
        return loss.supervised_loss(logp_bt, batch), {}

    def _logp(self, params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        model = nnx.merge(self._graph, params)
        h_btd = model.hidden(batch.token_bt, batch.position_bt, batch.segment_bt)
        return target_logp(
            h_btd,
            model.head().astype(h_btd.dtype),
            batch.target_bt,
            batch.temperature_bt,
            batch.loss_weight_bt > 0,
            self._shards,
        )

    def _add_group(self, total: Any, grads: Any) -> tuple[Any, jax.Array]:
        norm = optimizer.global_norm(grads)
        if self._settings.role_weighting == "balanced":
            grads = optimizer.clip(grads, norm, self._settings.clip_norm)
        return jax.tree.map(jnp.add, total, grads), norm

    def _apply_update(
        self, params: Any, state: Any, grads: Any, learning_rate: jax.Array
    ) -> tuple[Any, Any, jax.Array]:
        norm = optimizer.global_norm(grads)
        if self._settings.role_weighting == "paper":
            grads = optimizer.clip(grads, norm, self._settings.clip_norm)
        params, state = jax.lax.cond(
            jnp.isfinite(norm),
            lambda: optimizer.adamw(params, grads, state, learning_rate, self._settings),
            lambda: (params, state),
        )
        return params, state, norm


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

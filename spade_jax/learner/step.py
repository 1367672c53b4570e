"""One optimizer step from a list of trajectories."""

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import PartitionSpec

from spade_jax import config
from spade_jax.learner import optimizer
from spade_jax.learner.logprobs import Shards
from spade_jax.learner.loss import PolicyLoss
from spade_jax.learner.metrics import policy_metrics
from spade_jax.learner.objective import Policy, Supervised
from spade_jax.learner.packing import Batch, Trajectory, pack, row_lengths
from spade_jax.models import sharding
from spade_jax.models.transformer import Transformer


class Learner:
    """Parameters, optimizer state and the compiled steps that change them.

    The arrays of ``params`` are donated: after :meth:`update` or :meth:`supervise` those read
    before are gone. A sampler takes the new ones.

    With several processes, each makes a Learner over the same mesh and gives it the same
    trajectories: a process puts its own rows on its own devices.

    Args:
      model: the initial policy, and the reference if ``settings.kl_coefficient`` is not 0.
      settings: the learner's section of the configuration.
      group_names: names of the groups that trajectories refer to by index.
      mesh: of ``models.sharding.make_mesh``; None is the default device. ``settings.rows`` must
        be a multiple of the devices over which rows are spread.
    """

    def __init__(
        self,
        model: Transformer,
        settings: config.Learner,
        group_names: Sequence[str],
        mesh: jax.sharding.Mesh | None = None,
    ) -> None:
        self._settings, self._names = settings, tuple(group_names)
        graph, params = nnx.split(model)
        self._batch_sharding, shards = _spread(mesh, settings)
        self._supervised = Supervised(graph, shards)
        self._policy = Policy(graph, shards, PolicyLoss.of(settings))
        self._mesh = mesh
        if mesh is not None:
            params = jax.device_put(params, sharding.shardings(params, mesh))
        # Copies: the caller's model must survive the donation of these.
        self.params = jax.tree.map(jnp.copy, params)
        self._optimizer, self._updates = optimizer.init(self.params, settings), 0
        if mesh is not None:
            self._optimizer = jax.tree.map(functools.partial(_on, mesh), self._optimizer)
        self._reference = None
        if settings.kl_coefficient:
            self._reference = optimizer.rest(jax.tree.map(jnp.copy, params), settings)

    def update(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """``settings.steps`` policy-gradient steps; metrics, all finite.

        Metrics are those of the first step, where the policy is the one that sampled;
        ``ratio_clipped``, with several steps, is the last one's share of clipped tokens.
        A trajectory whose advantage is 0 has no gradient if KL and entropy have no coefficient:
        it keeps its share of the mean, but no pass is run and its tokens are not in the metrics.
        Without any trained token nothing happens.

        Raises:
          ValueError: a trajectory cannot be learnt from.
          FloatingPointError: a gradient is not finite; that step and later ones are not made.
        """
        settings = self._settings
        passed = trajectories
        if not settings.kl_coefficient and not settings.entropy_coefficient:
            passed = [t if t.advantage else _untrained(t) for t in trajectories]
        packed = self._pack(passed)
        batches = self._with_old_logp(packed) if settings.steps > 1 else packed
        rates = [
            optimizer.warm_rate(settings, self._updates + index) for index in range(settings.steps)
        ]
        metrics: dict[str, float] = {}
        for outputs, made in self._steps(trajectories, batches, self._policy, rates):
            made |= policy_metrics(packed, outputs, self._names, settings.importance_cap)
            last = {key: value for key, value in made.items() if key.startswith("ratio_clipped")}
            metrics = metrics | last if metrics else made
        return metrics

    def supervise(
        self, trajectories: Sequence[Trajectory], learning_rate: float
    ) -> dict[str, float]:
        """One step of supervised learning on the trained tokens; ``loss`` is nats per token.

        Advantages and sampler log-probs are not used. Raises as :meth:`update`.
        """
        batches = self._pack(trajectories)
        ((_, metrics),) = self._steps(trajectories, batches, self._supervised, [learning_rate])
        return metrics

    @property
    def updates(self) -> int:
        """Optimizer steps made so far."""
        return self._updates

    @property
    def state(self) -> Any:
        """Pytree of arrays that a checkpoint carries: parameters and optimizer state.

        The reference is not in it: it is the initial model, which a resumed run builds again.
        """
        return {"params": self.params, "optimizer": self._optimizer}

    @state.setter
    def state(self, state: Any) -> None:
        self.params = state["params"]
        self._optimizer = optimizer.rest(state["optimizer"], self._settings)
        self._updates = optimizer.updates(self._optimizer)

    def _pack(self, trajectories: Sequence[Trajectory]) -> list[list[Batch]]:
        return pack(trajectories, self._settings.row_length, self._settings.rows, len(self._names))

    def _with_old_logp(self, batches: list[list[Batch]]) -> list[list[Batch]]:
        """``batches`` with the log-probs of the policy as it is now, on the devices."""

        def filled(batch: Batch) -> Batch:
            placed = self._place(batch)
            return placed._replace(old_logp_bt=_logp(self._policy, self.params, placed))

        with self._on_mesh():
            return [[filled(batch) for batch in group] for group in batches]

    def _steps(
        self,
        trajectories: Sequence[Trajectory],
        batches: list[list[Batch]],
        objective: Supervised,
        learning_rates: Sequence[float],
    ) -> list[tuple[list[list[dict[str, np.ndarray]]], dict[str, float]]]:
        """A step on ``batches`` at each rate: what its passes gave, and metrics."""
        trains = any(t.weight and any(t.trained) for t in trajectories)
        launched = []
        with self._on_mesh():
            for rate in learning_rates:
                total, norms, outputs = self._gradient(objective, batches)
                norm = self._move(total, rate) if trains else np.float32(0)
                launched.append((outputs, norms, norm))
        made = jax.device_get(launched)  # the only wait
        self._updates = optimizer.updates(self._optimizer)
        return [(step[0], self._step_metrics(trajectories, *step)) for step in made]

    def _step_metrics(
        self,
        trajectories: Sequence[Trajectory],
        outputs: list[list[dict[str, np.ndarray]]],
        norms: list[np.ndarray],
        norm: np.ndarray,
    ) -> dict[str, float]:
        self._require_finite(norms)
        losses = [output.pop("loss") for group in outputs for output in group]
        metrics = {"loss": float(np.sum(losses)), "grad_norm": float(norm)}
        for index, name in enumerate(self._names):
            metrics[f"grad_norm/{name}"] = float(norms[index])
            metrics[f"tokens/{name}"] = float(
                sum(len(t.tokens) for t in trajectories if t.group == index)
            )
        return metrics

    def _on_mesh(self) -> contextlib.AbstractContextManager:
        return jax.set_mesh(self._mesh) if self._mesh else contextlib.nullcontext()

    def _place(self, batch: Batch) -> Batch:
        """``batch`` on the devices; of several processes, each puts what its devices hold."""
        layout = self._batch_sharding
        if isinstance(batch.token_bt, jax.Array):
            return batch  # it was placed for an earlier pass
        if layout is None:
            return jax.device_put(batch)
        return jax.tree.map(
            lambda x_bt: jax.make_array_from_callback(x_bt.shape, layout, x_bt.__getitem__), batch
        )

    def _gradient(
        self, objective: Supervised, batches: list[list[Batch]]
    ) -> tuple[Any, list[Any], list[list[dict[str, Any]]]]:
        """Sum of all gradients, norm of each group's, outputs of each pass; nothing is awaited."""
        total: Any = None
        norms: list[Any] = []
        outputs: list[list[dict[str, Any]]] = []
        for group in batches:
            outputs.append([])
            if not group:
                norms.append(np.float32(0))
                continue
            grads = _zeros(self.params)
            for batch in group:
                grads, output = _accumulate(
                    objective,
                    self._settings,
                    self.params,
                    self._reference,
                    grads,
                    self._place(batch),
                )
                outputs[-1].append(output)
            total, norm = _add_group(self._settings, total, grads)
            norms.append(norm)
        return _zeros(self.params) if total is None else total, norms, outputs

    def _move(self, grads: Any, learning_rate: float) -> jax.Array:
        """Makes the optimizer step; the norm of ``grads``."""
        everywhere = None
        if self._mesh is not None:
            everywhere = jax.sharding.NamedSharding(self._mesh, PartitionSpec())
        rate = jax.device_put(np.float32(learning_rate), everywhere)
        self.params, self._optimizer, norm = _apply(
            self._settings, self.params, self._optimizer, grads, rate
        )
        return norm

    def _require_finite(self, norms: list[np.ndarray]) -> None:
        for name, norm in zip(self._names, norms, strict=True):
            if not np.isfinite(norm):
                raise FloatingPointError(
                    f"group {name}: gradient norm is {norm}; parameters and optimizer are as "
                    "before. Look at this group's advantages, or resume an older checkpoint"
                )


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _accumulate(
    objective: Supervised,
    settings: config.Learner,
    params: Any,
    reference: Any,
    grads: Any,
    batch: Batch,
) -> tuple[Any, dict[str, jax.Array]]:
    """``grads`` and the gradient of one micro-batch, summed in float32; outputs everywhere."""
    reference = optimizer.fetch(reference, settings)
    new, output = jax.grad(objective, has_aux=True)(params, reference, batch)
    grads = jax.tree.map(lambda a, b: a + b.astype(jnp.float32), grads, sharding.place(new))
    return grads, sharding.replicate(output)


@functools.partial(jax.jit, static_argnums=0)
def _logp(objective: Supervised, params: Any, batch: Batch) -> jax.Array:
    return sharding.constrain(objective.logp(params, batch)[0], "batch", "length")


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _add_group(settings: config.Learner, total: Any, grads: Any) -> tuple[Any, jax.Array]:
    """``total``, None at first, and the gradient of one group, and the norm of the latter."""
    norm = optax.tree.norm(grads)
    if settings.role_weighting == "balanced":
        grads = optimizer.clip(grads, norm, settings.clip_norm)
    return grads if total is None else jax.tree.map(jnp.add, total, grads), norm


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _apply(
    settings: config.Learner, params: Any, state: Any, grads: Any, learning_rate: jax.Array
) -> tuple[Any, Any, jax.Array]:
    """Parameters and state after a step, or as they were if the gradient is not finite."""
    norm = optax.tree.norm(grads)
    if settings.role_weighting == "paper":
        grads = optimizer.clip(grads, norm, settings.clip_norm)
    fetched = optimizer.fetch(state, settings)
    params, state = jax.lax.cond(
        jnp.isfinite(norm),
        lambda: optimizer.move(params, grads, fetched, learning_rate, settings),
        lambda: (params, fetched),
    )
    return params, optimizer.rest(state, settings), norm


@jax.jit
def _zeros(params: Any) -> Any:
    return sharding.place(jax.tree.map(lambda p: jnp.zeros_like(p, jnp.float32), params))


def _spread(
    mesh: jax.sharding.Mesh | None, settings: config.Learner
) -> tuple[jax.sharding.Sharding | None, Shards]:
    """Sharding of a batch, and the blocks in which devices hold it and the vocabulary."""
    if mesh is None:
        return None, Shards()
    shards = Shards(*(sharding.ways(mesh, axis) for axis in ("batch", "length", "vocabulary")))
    if settings.rows % shards.rows:
        raise ValueError(
            f"learner.rows = {settings.rows} cannot be spread over the {shards.rows} devices of "
            f"mesh axes {', '.join(sharding.RULES['batch'] or ())}; make it a multiple"
        )
    shortest = row_lengths(settings.row_length)[-1]
    if shortest % shards.length:
        raise ValueError(
            f"learner.row_length = {settings.row_length} gives rows of {shortest}, which do not "
            f"divide over mesh.context = {shards.length}; make it a multiple"
        )
    return jax.sharding.NamedSharding(mesh, sharding.spec("batch", "length")), shards


def _on(mesh: jax.sharding.Mesh, x: jax.Array) -> jax.Array:
    """``x``, everywhere on the mesh if it is not on it yet: what counts updates."""
    if isinstance(x.sharding, jax.sharding.NamedSharding):
        return x
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, PartitionSpec()))


def _untrained(trajectory: Trajectory) -> Trajectory:
    return dataclasses.replace(trajectory, trained=[False] * len(trajectory.tokens))

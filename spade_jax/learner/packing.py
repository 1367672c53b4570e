"""Trajectories of ragged lengths become a few static shapes, and the loss weight that undoes it.

A micro-batch has ``rows`` x ``row_length`` places. Short trajectories would pay for long rows in
attention, so the same number of places is also offered as twice the rows of half the length, and
so on: at most :data:`SHAPES` shapes, whatever the lengths. A micro-batch holds one group only, so
that a gradient per group costs no extra pass.

Index t of every array describes one prediction: token ``t`` is read, ``target`` is predicted, and
weight, advantage and sampler log-prob are those of the target. Causality makes everything after
the last trained token irrelevant, so it takes no place.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

SHAPES = 4
"""Most row lengths in use: ``row_length``, its half, its quarter, its eighth."""
SHORTEST_ROW = 64
"""Tokens under which a row is not halved again."""
ATTENTION = 0.5
"""Time of attention in the longest rows, as a share of what any token costs; a guess serves."""
LOGP_FLOOR = -100.0
"""Nats. Samplers write -inf or -3.4e38 for a token they held impossible; this stands for both."""


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One sequence of tokens to learn from.

    Attributes:
      tokens: ids, at least one.
      trained: per token, whether the policy chose it and is to learn from it; never the first.
      sampler_logp: per token, natural-log probability recorded by the sampler at ``temperature``;
        read where ``trained``.
      advantage: copied to every trained token.
      weight: share of this trajectory in the mean over trajectories.
      group: index of the group (role) whose gradient norm it counts to.
      temperature: at which it was sampled and at which its log-probs are recomputed.
      expert_tlk: experts that its first tokens were given when it was sampled, integers [tokens or
        fewer, layers, experts of a token]; the model gives them the same. None = its own choice.
    """

    tokens: Sequence[int]
    trained: Sequence[bool]
    sampler_logp: Sequence[float]
    advantage: float
    weight: float = 1.0
    group: int = 0
    temperature: float = 1.0
    expert_tlk: np.ndarray | None = None


class Batch(NamedTuple):
    """One micro-batch: arrays [rows, row length], numpy here and jax on the device.

    The first four are int32, the others float32. ``old_logp_bt``, of the policy that several steps
    on the same batch start from, is filled by the learner; None is the current policy.
    ``expert_btlk`` int16 are experts to take, -1 where the router chooses; None = everywhere.

    ``segment_bt`` numbers the trajectories of a row from 1; 0 is padding. ``position_bt`` restarts
    with each. ``loss_weight_bt`` is weight_i / (trained tokens of i) / (sum of all weights), and 0
    where nothing is trained: summed over every micro-batch it makes the mean over trajectories of
    their means over trained tokens, however they are packed, cut and spread.
    """

    token_bt: Any
    target_bt: Any
    segment_bt: Any
    position_bt: Any
    loss_weight_bt: Any
    advantage_bt: Any
    sampler_logp_bt: Any
    temperature_bt: Any
    old_logp_bt: Any = None
    expert_btlk: Any = None


@dataclasses.dataclass
class _Row:
    length: int
    pieces: list[tuple[Trajectory, int, float]]  # trajectory, places it takes, weight of a token
    used: int = 0

    def add(self, piece: tuple[Trajectory, int, float]) -> None:
        self.pieces.append(piece)
        self.used += piece[1]


def pack(
    trajectories: Sequence[Trajectory], row_length: int, rows: int, groups: int
) -> list[list[Batch]]:
    """Micro-batches of each group, ``groups`` lists in order; a list is empty if nothing trains.

    Raises:
      ValueError: a trajectory that cannot be learnt from; the message gives its index and why.
    """
    needed = [_places(i, t, row_length, groups) for i, t in enumerate(trajectories)]
    total_weight = math.fsum(trajectory.weight for trajectory in trajectories)
    pieces: list[list[tuple[Trajectory, int, float]]] = [[] for _ in range(groups)]
    for trajectory, places in zip(trajectories, needed, strict=True):
        if places and trajectory.weight:
            token_weight = trajectory.weight / sum(trajectory.trained) / total_weight
            pieces[trajectory.group].append((trajectory, places, token_weight))
    replayed = [t.expert_tlk.shape[1:] for t in trajectories if t.expert_tlk is not None]
    return [
        [
            _fill(batch, length, rows * row_length // length, replayed[0] if replayed else None)
            for length, batch in _cheapest(group, row_lengths(row_length), rows)
        ]
        for group in pieces
    ]


def row_lengths(row_length: int) -> list[int]:
    """Row lengths in use, longest first, for a configured longest one."""
    halved = [row_length >> i for i in range(1, SHAPES)]
    return [row_length] + [length for length in halved if length >= SHORTEST_ROW]


def _places(index: int, trajectory: Trajectory, row_length: int, groups: int) -> int:
    """Places in a row: tokens before the last trained one; 0 if none is trained."""

    def require(condition: bool, reason: str) -> None:
        if not condition:
            raise ValueError(f"trajectory {index}: {reason}")

    tokens, trained = len(trajectory.tokens), trajectory.trained
    require(tokens > 0, "has no tokens; drop it before the learner")
    require(
        tokens == len(trained) == len(trajectory.sampler_logp),
        f"{tokens} tokens, {len(trained)} trained flags and {len(trajectory.sampler_logp)} "
        "sampler log-probs must be aligned",
    )
    require(0 <= trajectory.group < groups, f"group {trajectory.group} is not one of {groups}")
    require(trajectory.temperature > 0, "temperature must be above 0; greedy plays do not train")
    require(math.isfinite(trajectory.advantage), f"advantage is {trajectory.advantage}")
    require(0 <= trajectory.weight < math.inf, f"weight is {trajectory.weight}")
    chosen = np.flatnonzero(trained)
    if not len(chosen):
        return 0
    require(chosen[0] > 0, "the first token is trained, but nothing predicts it")
    logp = np.asarray(trajectory.sampler_logp, np.float64)[chosen]
    require(bool((logp < 1e-3).all()), "a sampler log-prob of a trained token is NaN or positive")
    places = int(chosen[-1])
    require(
        places <= row_length,
        f"needs {places} places and a row has {row_length}; raise learner.row_length or cut it",
    )
    return places


def _cheapest(
    pieces: list[tuple[Trajectory, int, float]], lengths: list[int], longest_rows: int
) -> list[tuple[int, list[_Row]]]:
    """(row length, rows) of each micro-batch, with the shortest lengths used or not.

    Pieces a little longer than a half of a row would leave the other half empty.
    """
    choices = [
        _micro_batches(_rows(pieces, used), used, longest_rows)
        for used in (lengths[: len(lengths) - unused] for unused in range(len(lengths)))
    ]

    def cost(batches: list[tuple[int, list[_Row]]]) -> float:
        return sum(1 + ATTENTION * length / lengths[0] for length, _ in batches)

    return min(choices, key=cost)


def _rows(pieces: list[tuple[Trajectory, int, float]], lengths: list[int]) -> list[_Row]:
    """First fit, longest first; a new row is the shortest that holds its first piece."""
    rows: list[_Row] = []
    for piece in sorted(pieces, key=lambda piece: -piece[1]):
        row = next((row for row in rows if row.length - row.used >= piece[1]), None)
        if row is None:
            row = _Row(min(length for length in lengths if length >= piece[1]), [])
            rows.append(row)
        row.add(piece)
    return rows


def _micro_batches(
    rows: list[_Row], lengths: list[int], longest_rows: int
) -> list[tuple[int, list[_Row]]]:
    """(row length, rows) of each micro-batch.

    Rows that would leave a micro-batch part empty are joined, two to a row of twice the length,
    as long as longer rows exist for them to share a micro-batch with.
    """
    batches: list[tuple[int, list[_Row]]] = []
    carried: list[_Row] = []
    for length in reversed(lengths):
        here = [row for row in rows if row.length == length] + carried
        full = longest_rows * (lengths[0] // length)
        longer = any(row.length > length for row in rows)
        kept = len(here) - len(here) % full if longer else len(here)
        batches += [(length, here[i : i + full]) for i in range(0, kept, full)]
        carried = [_join(here[i : i + 2], length * 2) for i in range(kept, len(here), 2)]
    return batches


def _join(rows: list[_Row], length: int) -> _Row:
    joined = _Row(length, [])
    for row in rows:
        for piece in row.pieces:
            joined.add(piece)
    return joined


def _fill(packed: list[_Row], length: int, rows: int, replayed: tuple[int, ...] | None) -> Batch:
    """``replayed``: layers and experts of a token, where experts are replayed."""
    integers = [np.zeros((rows, length), np.int32) for _ in range(4)]
    floats = [np.zeros((rows, length), np.float32) for _ in range(4)]
    batch = Batch(*integers, *floats)
    batch.temperature_bt.fill(1.0)
    if replayed is not None:
        batch = batch._replace(expert_btlk=np.full((rows, length, *replayed), -1, np.int16))
    for b, row in enumerate(packed):
        start = 0
        for segment, (trajectory, places, token_weight) in enumerate(row.pieces, start=1):
            here = np.s_[b, start : start + places]
            trained = np.asarray(trajectory.trained[1 : places + 1], bool)
            tokens = np.asarray(trajectory.tokens[: places + 1], np.int32)
            logp = np.asarray(trajectory.sampler_logp[1 : places + 1], np.float64)
            batch.token_bt[here] = tokens[:-1]
            batch.target_bt[here] = tokens[1:]
            batch.segment_bt[here] = segment
            batch.position_bt[here] = np.arange(places)
            batch.loss_weight_bt[here] = trained * token_weight
            batch.advantage_bt[here] = trained * trajectory.advantage
            batch.sampler_logp_bt[here] = np.where(trained, np.maximum(logp, LOGP_FLOOR), 0)
            batch.temperature_bt[here] = trajectory.temperature
            if trajectory.expert_tlk is not None:
                known = trajectory.expert_tlk[:places]
                batch.expert_btlk[b, start : start + len(known)] = known
            start += places
    return batch

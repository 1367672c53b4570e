"""What a plan of the scheduler is on the device: arrays of its compiled shape."""

import numpy as np

from spade_jax.sampling.native.draw import Draw
from spade_jax.sampling.native.forward import Decode, Prefill
from spade_jax.sampling.native.memory import PAGE_SIZE
from spade_jax.sampling.native.scheduler import DecodePlan, PrefillPlan

MAX_STOP_IDS = 16


def prefill(plan: PrefillPlan, pool: int) -> Prefill:
    """``pool``: pages of the cache; what is written past them is written nowhere."""
    batch = Prefill(
        token_rt=np.zeros((plan.rows, plan.chunk), np.int32),
        count_r=np.zeros(plan.rows, np.int32),
        start_r=np.zeros(plan.rows, np.int32),
        page_rp=np.zeros((plan.rows, plan.pages), np.int32),
        write_rt=np.full((plan.rows, plan.chunk), pool * PAGE_SIZE, np.int32),
    )
    for row, (sequence, count) in enumerate(zip(plan.sequences, plan.counts, strict=True)):
        start = sequence.cached
        batch.token_rt[row, :count] = sequence.tokens[start : start + count]
        batch.count_r[row], batch.start_r[row] = count, start
        _fill_pages(batch.page_rp[row], sequence.pages)
        batch.write_rt[row, :count] = _places(sequence.pages, start, count)
    return batch


def decode(plan: DecodePlan, steps: int, pool: int) -> Decode:
    """At most ``steps`` tokens of each sequence; ``pool`` as in :func:`prefill`."""
    rows = plan.rows
    params = [sequence.request.params for sequence in plan.sequences]
    how = Draw(
        key_bc=np.zeros((rows, 2), np.uint32),
        temperature_b=_column([p.temperature for p in params], rows, np.float32),
        top_p_b=_column([p.top_p for p in params], rows, np.float32, 1.0),
        min_p_b=_column([p.min_p for p in params], rows, np.float32),
        top_k_b=_column([p.top_k for p in params], rows, np.int32),
        noisy=np.bool_(any(p.temperature > 0 for p in params)),
        truncated=np.bool_(any(p.top_p < 1 or p.min_p > 0 or p.top_k > 0 for p in params)),
    )
    batch = Decode(
        token_b=np.zeros(rows, np.int32),
        start_b=np.zeros(rows, np.int32),
        limit_b=np.zeros(rows, np.int32),
        page_bp=np.zeros((rows, plan.pages), np.int32),
        write_bs=np.full((rows, steps), pool * PAGE_SIZE, np.int32),
        stop_bm=np.full((rows, MAX_STOP_IDS), -1, np.int32),
        how=how,
    )
    for row, sequence in enumerate(plan.sequences):
        count = min(steps, sequence.limit - len(sequence.tokens))
        batch.token_b[row], batch.start_b[row] = sequence.tokens[-1], sequence.cached
        batch.limit_b[row] = count
        _fill_pages(batch.page_bp[row], sequence.pages)
        batch.write_bs[row, :count] = _places(sequence.pages, sequence.cached, count)
        stop_ids = sequence.request.params.stop_ids
        batch.stop_bm[row, : len(stop_ids)] = stop_ids
        how.key_bc[row] = sequence.noise_key
    return batch


def _column(values: list, rows: int, dtype: type, rest: float = 0.0) -> np.ndarray:
    return np.array(values + [rest] * (rows - len(values)), dtype)


def _fill_pages(page_p: np.ndarray, pages: list[int]) -> None:
    count = min(len(page_p), len(pages))
    page_p[:count] = pages[:count]


def _places(pages: list[int], start: int, count: int) -> np.ndarray:
    """Places in the flattened pool of positions start … start + count."""
    position = np.arange(start, start + count)
    return np.asarray(pages, np.int32)[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE

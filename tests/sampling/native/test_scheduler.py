"""The scheduler with a pretended device: everything ends, in declared shapes, within memory."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.pages import Pages
from spade_jax.sampling.native.scheduler import (
    CopyPlan,
    PrefillPlan,
    Scheduler,
    Sequence,
    Shapes,
)

SIZE, CONTEXT = 4, 100


def sequence(number, prompt, max_tokens):
    """Few different prompts, so that there are groups; some have a session."""
    session = f"s{number % 3}" if number % 2 else None
    request = Request([prompt % 2] * prompt, SamplingParams(max_tokens), str(number), session)
    limit = min(prompt + max_tokens, CONTEXT)
    return Sequence(request, np.zeros(2, np.uint32), list(request.tokens), limit)


class Cache:
    """What a device would hold: at every place, the tokens up to the one it belongs to."""

    def __init__(self):
        self._held, self._scheduler = {}, None

    def copy(self, pairs):
        """Pages whole, from what they held before the call."""
        before = dict(self._held)
        for old, new in pairs:
            for offset in range(SIZE):
                self._held[new, offset] = before.get((old, offset))

    def write(self, one, start, count):
        for position in range(start, start + count):
            key = one.pages[position // SIZE], position % SIZE
            self._held[key] = hash(tuple(one.tokens[: position + 1]))

    def check(self, one):
        """Every place that the sequence will read is its own history."""
        for position in range(one.cached):
            key = one.pages[position // SIZE], position % SIZE
            assert self._held[key] == hash(tuple(one.tokens[: position + 1]))


@settings(max_examples=150, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(
            st.sampled_from([1, 4, 5, 31, 32, 33, CONTEXT - 1]),
            st.integers(1, 60),
            st.integers(0, 30),
        ),
        min_size=1,
        max_size=12,
    ),
    slots=st.integers(1, 6),
    pages=st.integers(CONTEXT // SIZE, 60),
    steps=st.integers(1, 9),
    new_weights=st.integers(0, 40),
)
def test_every_sequence_ends_in_declared_shapes_and_reads_its_own_history(
    jobs, slots, pages, steps, new_weights
):
    shapes = Shapes.choose(slots, 16, CONTEXT, SIZE, pages)
    scheduler = Scheduler(Pages(pages, SIZE), shapes, slots, steps)
    arrivals = sorted((when, i, prompt, most) for i, (prompt, most, when) in enumerate(jobs))
    done, tick, cache = 0, 0, Cache()
    while arrivals or not scheduler.empty:
        while arrivals and (arrivals[0][0] <= tick or scheduler.empty):
            _, i, prompt, most = arrivals.pop(0)
            scheduler.add(sequence(i, prompt, most))
        if tick == new_weights:
            scheduler.recompute()
            cache = Cache()
        plan = scheduler.plan()
        tick += 1
        assert tick < 3000
        if isinstance(plan, CopyPlan):
            assert 0 < len(plan.pairs) <= slots
            cache.copy(plan.pairs)
            continue
        assert len(plan.sequences) <= plan.rows
        for one in plan.sequences:
            assert one.cached <= plan.pages * SIZE
            cache.check(one)
        if isinstance(plan, PrefillPlan):
            assert (plan.rows, plan.chunk, plan.pages) in shapes.prefills()
            for one, count in zip(plan.sequences, plan.counts, strict=True):
                assert 0 < count <= plan.chunk
                assert one.cached + count <= min(len(one.tokens) - 1, len(one.pages) * SIZE)
                cache.write(one, one.cached, count)
                one.cached += count
            continue
        assert (plan.rows, plan.pages) in shapes.decodes()
        assert plan.rows == 1 or plan.rows * plan.pages <= pages
        for one in plan.sequences:
            assert one.uncached == 0
            count = min(steps, one.limit - len(one.tokens))
            assert one.cached + count <= len(one.pages) * SIZE
            one.tokens += [int(one.request.uid)] * count
            cache.write(one, one.cached, count)
            one.cached += count
            if len(one.tokens) == one.limit:
                scheduler.finish(one)
                done += 1
    assert done == len(jobs)
    for name in ("s0", "s1", "s2"):
        scheduler.pages.release(name)
    assert scheduler.pages.free == pages


def test_a_group_prefills_its_prompt_once_and_shares_its_whole_pages():
    """Nine of one prompt of 30 tokens: 29 are cached, in seven pages and a bit of an eighth."""
    scheduler = Scheduler(Pages(60, SIZE), Shapes.choose(9, 16, CONTEXT, SIZE, 60), 9, 3)
    group = [sequence(2 * n, 30, 3) for n in range(9)]
    for one in group:
        scheduler.add(one)
    prefilled = 0
    while isinstance(plan := scheduler.plan(), PrefillPlan):
        assert plan.sequences == group[:1]
        prefilled += sum(plan.counts)
        group[0].cached += plan.counts[0]
    assert prefilled == 29
    assert isinstance(plan, CopyPlan)
    assert plan.pairs == [(group[0].pages[7], one.pages[7]) for one in group[1:]]
    for one in group[1:]:
        assert one.cached == 29
        assert one.pages[:7] == group[0].pages[:7]
    # Nine pages for the prompt and 3 more tokens, where nine apart would need 81.
    assert 60 - scheduler.pages.free == 7 + 9 * 2

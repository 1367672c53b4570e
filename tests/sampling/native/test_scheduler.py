"""The scheduler with a pretended device: everything ends, in declared shapes, within memory."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.pages import Pages
from spade_jax.sampling.native.scheduler import PrefillPlan, Scheduler, Sequence, Shapes

SIZE, CONTEXT = 4, 100


def sequence(number, prompt, max_tokens):
    request = Request([number] * prompt, SamplingParams(max_tokens), str(number), f"s{number % 3}")
    limit = min(prompt + max_tokens, CONTEXT)
    return Sequence(request, np.zeros(2, np.uint32), list(request.tokens), limit)


@settings(max_examples=150, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(1, CONTEXT - 1), st.integers(1, 60), st.integers(0, 30)),
        min_size=1,
        max_size=12,
    ),
    slots=st.integers(1, 6),
    pages=st.integers(CONTEXT // SIZE, 60),
    steps=st.integers(1, 9),
)
def test_every_sequence_ends_in_declared_shapes_and_owns_what_it_writes(jobs, slots, pages, steps):
    shapes = Shapes.choose(slots, 16, CONTEXT, SIZE, pages)
    scheduler = Scheduler(Pages(pages, SIZE), shapes, slots, steps)
    arrivals = sorted((when, i, prompt, most) for i, (prompt, most, when) in enumerate(jobs))
    done, tick = 0, 0
    while arrivals or not scheduler.empty:
        while arrivals and (arrivals[0][0] <= tick or scheduler.empty):
            _, i, prompt, most = arrivals.pop(0)
            scheduler.add(sequence(i, prompt, most))
        plan = scheduler.plan()
        tick += 1
        assert tick < 3000
        if isinstance(plan, PrefillPlan):
            assert (plan.rows, plan.chunk, plan.pages) in shapes.prefills()
            assert len(plan.sequences) <= plan.rows
            for one, count in zip(plan.sequences, plan.counts, strict=True):
                assert 0 < count <= plan.chunk
                assert one.cached <= plan.pages * SIZE
                assert one.cached + count <= min(len(one.tokens) - 1, len(one.pages) * SIZE)
                one.cached += count
            continue
        assert (plan.rows, plan.pages) in shapes.decodes()
        assert plan.rows == 1 or plan.rows * plan.pages <= pages
        assert len(plan.sequences) <= plan.rows
        for one in plan.sequences:
            assert one.uncached == 0
            count = min(steps, one.limit - len(one.tokens))
            assert one.cached <= plan.pages * SIZE
            assert one.cached + count <= len(one.pages) * SIZE
            one.tokens += [0] * count
            one.cached += count
            if len(one.tokens) == one.limit:
                scheduler.finish(one)
                done += 1
    assert done == len(jobs)
    for name in ("s0", "s1", "s2"):
        scheduler.pages.release(name)
    assert scheduler.pages.free == pages

"""Page ownership: whatever happens, every page is free or has the owners that hold it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from spade_jax.sampling.native.pages import Pages

SIZE, COUNT = 4, 12
tokens = st.lists(st.integers(0, 2), max_size=SIZE * 5)


class Ownership(RuleBasedStateMachine):
    """Runs random operations beside a plain model: session -> tokens it was last left with."""

    owners = Bundle("owners")

    def __init__(self):
        super().__init__()
        self.pages, self.owned, self.idle = Pages(COUNT, SIZE), [], {}

    @rule(target=owners, session=st.sampled_from("abc"), wanted=tokens)
    def take(self, session, wanted):
        length, pages = self.pages.take(session, wanted)
        left = self.idle.pop(session, [])
        common = next(
            (i for i, (x, y) in enumerate(zip(left, wanted, strict=False)) if x != y),
            min(len(left), len(wanted)),
        )
        whole = common // SIZE * SIZE  # without the last page, if others read it
        assert length in (0, whole, common)  # 0 if it was evicted
        assert len(pages) == -(-length // SIZE)
        if length % SIZE:
            assert self.holders().count(pages[-1]) == 0  # the caller may write
        self.owned.append(pages)
        return pages

    @rule(pages=owners, count=st.integers(0, SIZE * COUNT + 4))
    def grow(self, pages, count):
        before = list(pages)
        missing = max(-(-count // SIZE) - len(pages), 0)
        fits = missing + len({page for owned in self.owned for page in owned}) <= COUNT
        assert self.pages.grow(pages, count) == fits
        assert pages[: len(before)] == before
        assert len(pages) == (max(-(-count // SIZE), len(before)) if fits else len(before))

    @rule(target=owners, pages=owners, count=st.integers(0, 3))
    def share(self, pages, count):
        shared = self.pages.share(pages[:count])
        assert shared == pages[:count]
        self.owned.append(shared)
        return shared

    @rule(pages=consumes(owners), session=st.sampled_from("abc"), cached=tokens)
    def keep(self, pages, session, cached):
        cached = cached[: len(pages) * SIZE]
        self.owned = [p for p in self.owned if p is not pages]
        self.pages.keep(session, cached, pages)
        self.idle[session] = cached

    @rule(pages=consumes(owners))
    def free(self, pages):
        self.owned = [p for p in self.owned if p is not pages]
        self.pages.free_pages(pages)
        assert pages == []

    @rule(session=st.sampled_from("abc"))
    def release(self, session):
        self.pages.release(session)
        self.idle.pop(session, None)

    def holders(self):
        idle = [page for prefix in self.pages._idle.values() for page in prefix.pages]
        return [*idle, *(page for pages in self.owned for page in pages)]

    @invariant()
    def every_page_is_free_or_held(self):
        held = self.holders()
        assert self.pages._owners == [held.count(page) for page in range(COUNT)]
        assert sorted([*self.pages._free, *set(held)]) == list(range(COUNT))


Ownership.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestOwnership = Ownership.TestCase


def test_the_least_recently_used_prefix_is_evicted_first():
    pages = Pages(3, SIZE)
    for name in "abc":
        taken = []
        assert pages.grow(taken, SIZE)
        pages.keep(name, [1, 2, 3], taken)
    length, again = pages.take("a", [1, 2, 3])
    pages.keep("a", [1, 2, 3], again)
    assert length == 3
    assert pages.grow([], 2 * SIZE)
    assert pages.take("b", [1, 2, 3]) == (0, [])
    assert pages.take("c", [1, 2, 3]) == (0, [])
    assert pages.take("a", [1, 2, 3])[0] == 3

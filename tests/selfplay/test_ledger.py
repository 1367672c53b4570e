"""The ledger answers as a plain filter over its rows does."""

from hypothesis import given
from hypothesis import strategies as st

from spade_jax.selfplay.ledger import Ledger, Play

plays = st.lists(
    st.builds(
        Play,
        environment=st.sampled_from("abc"),
        iteration=st.integers(0, 3),
        arm=st.sampled_from(["plain", "hinted"]),
        seed=st.integers(0, 2),
        episode_return=st.floats(-1, 1),
    )
)


@given(plays, st.sampled_from("abc"), st.sampled_from(["plain", "hinted"]), st.integers(0, 3))
def test_queries_equal_a_filter(rows, environment, arm, iteration):
    ledger = Ledger(rows)
    mine = [row for row in rows if row.environment == environment and row.arm == arm]
    assert ledger.plays(environment, arm) == mine
    here = [row for row in mine if row.iteration == iteration]
    assert ledger.returns(environment, arm, iteration) == [row.episode_return for row in here]
    means = ledger.seed_means(environment, arm, iteration)
    assert set(means) == {row.seed for row in here}
    for seed, mean in means.items():
        values = [row.episode_return for row in here if row.seed == seed]
        assert abs(mean - sum(values) / len(values)) < 1e-12


@given(plays)
def test_json_round_trip(rows):
    ledger = Ledger(rows)
    again = Ledger.from_json(ledger.to_json())
    assert again.to_json() == ledger.to_json()


@given(plays)
def test_keep_forgets_the_rest(rows):
    ledger = Ledger(rows)
    ledger.keep({"a"})
    assert {play["environment"] for play in ledger.to_json()} <= {"a"}
    assert ledger.plays("a") == Ledger(rows).plays("a")

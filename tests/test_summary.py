"""The summary says what happened; the verdict fails runs that show no self-play."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from spade_jax import summary
from spade_jax.selfplay.ledger import Ledger, Play
from spade_jax.selfplay.state import Environment

WORKDIR = Path("runs/x")


def row(iteration, asked=6, accepted=6, mixed=2, **more):
    values = {
        "iteration": iteration,
        "environments/asked": asked,
        "environments/accepted": accepted,
        "environments/mixed": mixed,
        "agent/trained": 24,
        "designer/trained": 6 * (iteration == 2),
        "grad_norm/agent": 0.5,
        "grad_norm/designer": 2.0 * (iteration == 2),
        "episodes/plain": 24,
        "returns/plain": 0.25,
        "tokens/play": 300,
        "time/play": 2.0,
        "trained_tokens/agent": 100 * (iteration > 0),  # the first one's games were all won
        "logp_gap/agent/mean": 1e-6 * iteration,
        "logp_gap/agent/max": 1e-4 * iteration,
    }
    if iteration % 2 == 0:
        values |= {"designer/slots": asked, "designer/accepted": accepted}
        values |= {"designer/attempts": 9, "refused/solvable": 2, "refused/syntax": 1}
        values |= {"returns/hinted": 0.5, "episodes/hinted": 24, "regret/mean": 0.25}
    return values | more


def text_of(rows):
    console = Console(file=io.StringIO(), width=120)
    summary.show(rows, WORKDIR, console)
    return console.file.getvalue()


def test_summary_counts():
    text = " ".join(text_of([row(0), row(1), row(2)]).split())
    for expected in (
        "environments asked for │ 12",
        "programs written │ 18",
        "accepted │ 12",
        "refused │ 6 (solvable 4, syntax 2)",
        "plain return │ 0.250 (first 0.250, last 0.250) over 72 episodes",
        "hinted return │ 0.500 (first 0.500, last 0.500) over 48 episodes",
        "designer gradient norm │ 2.000 in 1 updates, 6 trajectories",
        "log-prob gap to the sampler │ mean 1.5e-06, max 2.0e-04 (agent)",
        "time in play │ 0:06, 150 tokens/s",
        "runs/x/metrics.jsonl",
    ):
        assert expected in text, expected


def test_one_line_an_iteration():
    assert summary.line(row(2)) == (
        "6/6 environments, plain 0.25, hinted 0.50, regret 0.25, trained 24 + 6"
    )


def test_half_of_the_slots_is_enough_and_less_is_not():
    summary.check([row(0, accepted=3), row(1, accepted=3)], WORKDIR)
    with pytest.raises(summary.RunFailed, match=r"only 8 of 18 slots .*rejections"):
        summary.check([row(n, accepted=3 - n // 2) for n in range(3)], WORKDIR)


def test_play_that_is_never_undecided_fails():
    summary.check([row(0, mixed=0), row(1, mixed=1)], WORKDIR)
    with pytest.raises(summary.RunFailed, match="nothing could be learned"):
        summary.check([row(0, mixed=0), row(1, mixed=0)], WORKDIR)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, []),
        ({"accepted": 4}, ["iteration 1: 2 of 6 slots hold no environment"]),
        (
            {"mixed": 0},
            ["iteration 1: no environment had plain returns that differ: play taught nothing"],
        ),
        (
            {"episodes/plain_dropped": 2, "episodes/hinted_dropped": 1},
            ["iteration 1: 3 episodes dropped"],
        ),
        ({"sampler/faults": 2.0}, ["iteration 1: 2 faults of SGLang servers"]),
    ],
)
def test_warnings_name_what_to_look_at(more, expected):
    assert summary.warnings(row(1, **more)) == expected


def test_the_latest_environments_with_their_win_rates():
    environments = [
        Environment(f"sha{i}", f"[{i}]", "Logic", i, 0, "", "", [], sample=None) for i in range(10)
    ]
    plays = [("sha8", "plain", 1.0), ("sha8", "plain", 0.5), ("sha8", "hinted", 1.0)]
    ledger = Ledger(Play(sha, 0, arm, 0, value) for sha, arm, value in plays)
    console = Console(file=io.StringIO(), width=100)
    console.print(summary.latest(environments, ledger))
    head, *rows = (line.split() for line in console.file.getvalue().splitlines())
    assert head[:4] == ["environment", "(10", "in", "play)"]
    assert [each[0] for each in rows] == [f"[{i}]" for i in range(2, 10)]
    assert rows[6] == ["[8]", "Logic", "0.75", "1.00", "2"]
    assert rows[7] == ["[9]", "Logic", "–", "–", "0"]

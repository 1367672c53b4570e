"""What is read out of a run directory, against figures worked out by hand."""

import math

import made_run
import pytest

from spade_jax.analysis import run


@pytest.fixture
def workdir(tmp_path):
    made_run.write(tmp_path / "made")
    return tmp_path / "made"


def test_environments_carry_win_rate_and_regret(workdir):
    first, second, third = run.read(workdir, 2, 1000)["environments"]
    assert [each["win_rate"] for each in (first, second, third)] == [0.5, 0.125, 1.0]
    # Seeds 0..3 of the first iteration: hinted minus plain is 0, 1, 0, 1, and 0, 1, 0, 0.
    assert [each["regret"] for each in (first, second, third)] == [0.5, 0.25, None]
    assert first["regret_error"] == pytest.approx(math.sqrt(1 / 3 / 4))
    assert second["regret_error"] == pytest.approx(0.25)
    assert [each["reward"] for each in (first, second, third)] == [0.75, None, None]
    assert second["exemplars"] == [first["sha"]]
    assert first["hint"] == made_run.HOSTILE
    assert third["hint"] == ""


def test_win_rates_are_binned_by_iteration(workdir):
    wins = run.read(workdir, 0, 1000)["wins"]
    assert wins == {0: [1, 0, 0, 0, 0, 1, 0, 0, 0, 1], 1: [0, 0, 1, 0, 0, 1, 0, 0, 0, 1]}


def test_bins_hold_every_return():
    plays = [
        {"iteration": 0, "sha": str(value), "arm": "plain", "return": value}
        for value in (-1.0, -0.01, 0.0, 0.0999, 0.1, 0.95, 1.0)
    ]
    dropped = [{**plays[0], "return": None}, {**plays[0], "arm": "hinted", "return": 0.5}]
    assert run.win_rate_bins(plays + dropped) == {0: [4, 1, 0, 0, 0, 0, 0, 0, 0, 2]}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_so_many_episodes_of_each_arm(workdir, count):
    first, _, third = run.read(workdir, count, 1000)["environments"]
    arms = [episode["arm"] for episode in first["episodes"]]
    assert sorted(arms) == ["hinted"] * count + ["plain"] * count
    assert [episode["arm"] for episode in third["episodes"]] == ["plain"] * count


def test_long_texts_are_cut_and_say_so(workdir):
    [first, *_] = run.read(workdir, 1, 10)["environments"]
    length = len(made_run.HOSTILE)
    shown = f"{made_run.HOSTILE[:10]}\n… {length - 10} more characters"
    assert first["episodes"][0]["first"] == shown
    assert first["episodes"][0]["turns"] == [[shown, shown, 1.0]]


def test_a_run_is_finished_when_it_has_all_iterations(tmp_path):
    made_run.write(tmp_path / "half", iterations=1)
    made_run.write(tmp_path / "whole")
    assert not run.finished(tmp_path / "half")
    assert run.finished(tmp_path / "whole")


def test_what_is_no_number_is_left_out(tmp_path):
    text = '{"iteration": 0, "a": NaN, "b": -Infinity, "c": null, "d": 1}\n'
    (tmp_path / "metrics.jsonl").write_text(text)
    assert run.read(tmp_path, 0, 1000)["metrics"] == [{"iteration": 0, "d": 1}]


def test_a_directory_without_a_run_is_named(tmp_path):
    with pytest.raises(run.NoRunError, match=r"holds no metrics\.jsonl: name the --workdir"):
        run.read(tmp_path, 1, 10)

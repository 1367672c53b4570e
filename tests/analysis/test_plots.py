"""What is drawn is what was given."""

import made_run
import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from spade_jax.analysis import curriculum, plots, run
from spade_jax.analysis.evaluations import Estimate
from spade_jax.environments.validation import Check, Report

matplotlib.use("agg")


@pytest.fixture
def axes():
    figure = Figure()
    yield figure.subplots()
    figure.canvas.draw()  # what cannot be drawn fails here


def test_returns_of_both_arms(axes):
    metrics = [{"iteration": at, "returns/plain": at / 4} for at in range(3)]
    metrics[1]["returns/hinted"] = 0.75
    plots.returns(axes, metrics)
    plain, hinted = (line.get_xydata().tolist() for line in axes.lines)
    assert plain == [[0, 0], [1, 0.25], [2, 0.5]]
    assert all(place == round(place) for place in axes.get_xticks())
    assert hinted == [[1, 0.75]]


def test_nothing_yet_is_an_empty_picture(axes):
    plots.returns(axes, [])
    assert [len(line.get_xydata()) for line in axes.lines] == [0, 0]


def test_arms_are_as_far_apart_as_regret(axes, tmp_path):
    made_run.write(tmp_path / "made")
    plots.arms(axes, run.read(tmp_path / "made", 100, 1000)["environments"])
    ends = [sorted(line.get_xdata()) for line in axes.lines]
    assert ends == [[0.0, 0.25], [0.5, 1.0]]  # second, first; third was not played with a hint


def test_win_rates_are_shares_of_an_iteration(axes):
    plots.win_rates(axes, {0: [1, 0, 3], 4: [0, 2, 0]})
    [mesh] = axes.collections
    np.testing.assert_allclose(mesh.get_array(), [[0.25, 0], [0, 1], [0.75, 0]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "4"]


def test_many_iterations_share_their_labels(axes):
    plots.win_rates(axes, {2 * at: [1] for at in range(100)})
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == [str(at) for at in range(0, 200, 18)]
    np.testing.assert_array_equal(axes.get_xticks(), range(0, 100, 9))


def test_no_two_variants_look_alike(axes):
    plots.lines(axes, {str(at): {0: Estimate(0.5, 0.4, 0.6)} for at in range(10)})
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 10


def test_what_episodes_were_spent_on(axes):
    plots.spent_on(axes, {2: curriculum.Spent(0.5, 0.25, 8)})
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[2, 0.5]], [[2, 0.25]]]


def test_checks_say_the_verdict(axes):
    good = Report((Check("parses", "passed"), Check("solvable", "off")))
    bad = Check("parses", "failed")
    plots.checks(axes, {"one": good, "two": Report((bad, Check("solvable", "skipped")), bad)})
    assert [text.get_text() for text in axes.texts] == ["accepted", "refused: parses"]
    marks = [each for each in axes.collections if len(each.get_offsets())]
    assert [tuple(each.get_offsets()[0]) for each in marks] == [(0, 0), (0, 1)]


def test_similarities_and_places(axes):
    plots.similarities(axes, np.eye(3))
    np.testing.assert_array_equal(axes.images[0].get_array(), np.eye(3))


def test_places_by_kind(axes):
    plots.places(axes, np.arange(6.0).reshape(3, 2), ["b", "a", "b"])
    drawn = {each.get_label(): each.get_offsets().tolist() for each in axes.collections}
    assert drawn == {"a": [[2, 3]], "b": [[0, 1], [4, 5]]}

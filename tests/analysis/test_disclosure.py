"""The text rule on observations labelled by hand."""

import pytest
import scipy.stats

from spade_jax.analysis import disclosure

SOURCE = """
class PendulumEnv:
    def reset(self, seed=None):
        self.length, self.g = 2.0, 9.81
        return "the word mass stands in a text", {}

    def step(self, force):
        period = 6.28 * (self.length / self.g) ** 0.5
        return "", float(force == period), True, False, {}
"""


@pytest.mark.parametrize(
    "observation",
    [
        "The period is period = 2 * pi * sqrt(length / g). Find it.",
        "Use Period = 6.28*(length/g)**0.5",
        "With force=3*x and x = 2, answer.",
        r"It obeys $T = 2\\pi\\sqrt{\\frac{length}{g}}$.",
        r"force = \\frac{a}{b}",
        "force(x) = 2x + 1 with x whole",
        "g = a × b",
    ],
)
def test_a_shown_rule(observation):
    assert disclosure.discloses(observation, SOURCE)


@pytest.mark.parametrize(
    "observation",
    [
        "Find the period of the pendulum.",
        "length = 2.0, g = 9.81. What is the period?",
        "Compute force = 17 + 4.",
        "Does period == length * g hold?",
        "mass = volume * density",  # 'mass' stands in a text alone; the others nowhere
        "period <= length * g, at most",
        "period = unknown",
        "Period: longer than the length",
        "force = sqrt(4) * 2",
        "",
    ],
)
def test_no_shown_rule(observation):
    assert not disclosure.discloses(observation, SOURCE)


def test_a_source_that_is_no_python_discloses_nothing():
    assert not disclosure.discloses("g = a * b", "def broken(g")


@pytest.mark.parametrize(("found", "asked"), [(0, 5), (3, 12), (7, 7)])
def test_the_rate_has_its_interval(found, asked):
    pairs = [("g = a * b", SOURCE)] * found + [("find g", SOURCE)] * (asked - found)
    rate = disclosure.rate(pairs)
    share, z2 = found / asked, scipy.stats.norm.ppf(0.975) ** 2
    centre = (share + z2 / (2 * asked)) / (1 + z2 / asked)
    half = (z2 * (share * (1 - share) / asked + z2 / (4 * asked**2))) ** 0.5 / (1 + z2 / asked)
    assert (rate.disclosing, rate.asked) == (found, asked)
    assert (rate.low, rate.high) == pytest.approx((centre - half, centre + half), abs=1e-9)


def test_nothing_asked_is_nothing_known():
    assert disclosure.rate([]) == disclosure.Rate(0, 0, 0.0, 1.0)

"""The table against figures done by hand, and the order of runs, with a stand-in for training."""

import json
import math
import subprocess
import sys
import textwrap

import pytest

from spade_jax import config, sweep


def rows(returns, episodes, tokens):
    """An iteration for each return, all of one price."""
    return [
        {"iteration": i, "returns/plain": value, "episodes/plain": episodes,
         "episodes/plain_dropped": 1, "tokens/play": tokens, "tokens/design": 10,
         "tokens/learn": 99}
        for i, value in enumerate(returns)
    ]  # fmt: skip


RUNS = {
    ("full", 0): rows([0.1, 0.2, 0.3, 0.4], episodes=9, tokens=90),
    ("full", 1): rows([0.3, 0.4, 0.5, 0.6], episodes=9, tokens=90),
    ("pool", 0): rows([0.0, 0.2, 0.4], episodes=19, tokens=40),
}


def test_configs_are_compared_at_what_the_cheapest_run_spent():
    budgets, cells = sweep.compare(RUNS, ["returns/plain"], window=2)
    # Iterations: pool has 3. Episodes: full has 4 · 10 = 40. Tokens: pool has 3 · 50 = 150.
    assert budgets == {"iterations": 3, "episodes": 40, "tokens": 150}
    full, pool = cells["full", "returns/plain"], cells["pool", "returns/plain"]
    assert full["iterations"].values == pytest.approx({0: 0.25, 1: 0.45})
    assert full["episodes"].values == pytest.approx({0: 0.35, 1: 0.55})
    assert full["tokens"].values == pytest.approx({0: 0.1, 1: 0.3})  # one iteration of 100
    assert pool["episodes"].values == pytest.approx({0: 0.1})  # two iterations of 20
    assert pool["iterations"].values == pool["tokens"].values == pytest.approx({0: 0.3})


def test_standard_errors_are_of_the_sample_deviation():
    values = [0.1, 0.4, 0.7, 0.2]
    cell = sweep.Cell(dict(enumerate([*values, None])))
    mean = sum(values) / 4
    assert cell.mean == pytest.approx(mean)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 3)
    assert cell.error == pytest.approx(deviation / 2)
    assert str(cell) == f"0.350 ± {deviation / 2:.3f}"
    assert str(sweep.Cell({0: 0.5})) == "0.500"
    assert str(sweep.Cell({0: None})) == "–"


def test_a_measure_that_is_too_late_for_the_budget_is_missing():
    late = [{"iteration": 0}, {"iteration": 1, "eval/score": 1.0}]
    assert sweep.measured(late, "iterations", 1, "eval/score", 4) is None
    assert sweep.measured(late, "iterations", 2, "eval/score", 4) == 1.0


def test_every_config_gets_a_seed_before_any_gets_the_next(tmp_path):
    configs = ["configs/games.py:30b,no_memory", "configs/games.py:30b"]
    runs = sweep.plan(configs, 2, tmp_path)
    assert [(run.config, run.seed) for run in runs] == [(c, s) for s in (0, 1) for c in configs]
    assert runs[0].workdir == tmp_path / "games_30b_no_memory" / "seed_0"
    with pytest.raises(config.ConfigError, match="name each one once"):
        sweep.plan([configs[0], configs[0]], 1, tmp_path)


STAND_IN = textwrap.dedent(
    '''
    """In place of spade_jax.train: two iterations, saved; says what it was asked for."""
    import json, pathlib, sys
    words = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
    workdir = pathlib.Path(words["workdir"])
    with open(workdir.parents[1] / "asked", "a") as file:
        file.write(f"{words['config']} {words['config.seed']} {words['config.agent.max_turns']}\\n")
    if words["config"] == "bad" and words["config.seed"] == "0":
        sys.exit(3)
    (workdir / "checkpoints" / "2").mkdir(parents=True)
    (workdir / "config.json").write_text(json.dumps({"iterations": 2}))
    row = {"returns/plain": float(words["config.seed"]), "episodes/plain": 1, "tokens/play": 1}
    (workdir / "metrics.jsonl").write_text((json.dumps(row) + "\\n") * 2)
    '''
)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """``run(*arguments)`` is the command, training the stand-in; gives its status and output."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    start = subprocess.Popen
    stand_in = [sys.executable, "-IS", str(tmp_path / "stand_in.py")]
    monkeypatch.setattr(subprocess, "Popen", lambda command: start(stand_in + command[3:]))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["sweep", f"--workdir={tmp_path / 'work'}", *arguments])
        with pytest.raises(SystemExit) as ended:
            sweep.main()
        return ended.value.code, capsys.readouterr().out

    return call


def test_a_sweep_goes_on_where_it_stopped(tmp_path, run):
    work = tmp_path / "work"
    said = "--config.agent.max_turns=7"
    status, printed = run("--configs=good bad", "--seeds=2", "--", said)
    assert status == 1
    asked = (work / "asked").read_text().splitlines()
    assert asked == ["good 0 7", "bad 0 7", "good 1 7", "bad 1 7"]
    assert "not finished: " + str(work / "bad" / "seed_0") in printed
    table = (work / "table.md").read_text()
    assert table in printed
    assert "| `good` | `returns/plain` | 2 | 0.500 ± 0.500 | 0.500 ± 0.500 | " in table
    assert "| `bad` | `returns/plain` | 1 | 1.000 | 1.000 | 1.000 |" in table
    facts = json.loads((work / "table.json").read_text())
    assert facts["budgets"] == {"iterations": 2, "episodes": 2, "tokens": 2}

    assert run("--configs=good bad", "--seeds=3", "--", said)[0] == 1
    asked = (work / "asked").read_text().splitlines()[4:]
    assert asked == ["bad 0 7", "good 2 7", "bad 2 7"]
    status, printed = run("--configs=good", "--seeds=3", "--", "--config.agent.max_turns=8")
    assert status == 1
    assert f"its runs were told {said}" in printed

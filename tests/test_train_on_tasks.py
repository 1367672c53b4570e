"""The entry point plays procedural tasks and evaluates: no sandbox, no corpus, no designer."""

import asyncio
import dataclasses
import io
import json

import pytest
from rich.console import Console

from spade_jax import config, policy, summary, train
from spade_jax.benchmarks import registry
from spade_jax.models import loading
from tests import tiny_run
from tests.conftest import make_byte_tokenizer
from tests.test_evaluation import Echo

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def untaught(monkeypatch):
    """The tiny model as it is, with a tokenizer of bytes."""

    async def prepare(wanted, workdir, progress, mesh, exchange):
        return loading.load(wanted.model, wanted.seed, mesh)[0], make_byte_tokenizer()

    monkeypatch.setattr(policy, "prepare", prepare)
    monkeypatch.setattr(registry, "BENCHMARKS", {"echo": lambda *_: Echo()})


def test_a_run_on_tasks_that_evaluates(tmp_path):
    settings = tiny_run.settings()
    settings = dataclasses.replace(
        settings,
        iterations=3,
        schedule=dataclasses.replace(settings.schedule, k=1, delay=1, slots=2, plain_plays=2),
        tasks=config.Tasks(module="tests.environments.odd_tasks", attempts=4),
        evaluation=config.Evaluation(every=2, benchmarks=("echo",)),
    )
    console = Console(width=200, file=io.StringIO())
    # A model this small answers nothing, which the summary notes at the end.
    with pytest.raises(summary.RunFailed, match="no environment had plain returns that differ"):
        asyncio.run(train.train(settings, tmp_path, console))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    assert all(row["episodes/plain"] == 4 and row["tasks/high"] == 0 for row in rows)
    assert "tasks of tests.environments.odd_tasks" in console.file.getvalue()
    sources = [path.read_text() for path in tmp_path.glob("environments/*/source.py")]
    assert len(sources) == 6
    assert {json.loads(source)["task"] for source in sources} == {"sum", "odd", "other"}
    # Before the first, after every second and after the last iteration.
    results = {
        path.parts[-3]: json.loads(path.read_text())
        for path in tmp_path.glob("evaluation/*/echo/result.json")
    }
    assert set(results) == {"initial", "step-2", "step-3"}
    assert all(result["tried"] == 8 for result in results.values())
    assert results["initial"]["protocol"]["policy"]["name"] == "initial"

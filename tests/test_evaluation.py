"""The entry point: from a config to a table; continued, skipped, with any of the policies."""

import asyncio
import contextlib
import dataclasses
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from aiohttp import web
from flax import nnx
from rich.console import Console

from spade_jax import config, evaluation, policy, trajectory
from spade_jax.benchmarks import acebench_data, bfcl, registry
from spade_jax.benchmarks.acebench import ACEBenchAgent
from spade_jax.benchmarks.interface import Absent, Item, Outcome
from spade_jax.benchmarks.results import Mixed
from spade_jax.learner.checkpoint import CheckpointError, Checkpoints
from spade_jax.learner.step import Learner
from spade_jax.models import huggingface, loading
from spade_jax.progress import RunProgress
from spade_jax.sampling.interface import SamplingParams
from spade_jax.selfplay.batch import ROLES
from tests.benchmarks import acebench_items
from tests.conftest import make_byte_tokenizer

ROOT = Path(__file__).parents[1]


class Echo:
    """Won by a reply whose first letter is even; counts its attempts."""

    name, title = "echo", "Echo"
    params = SamplingParams(max_tokens=3, temperature=1.0)
    attempts = 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    def items(self):
        return [Item(f"{column}{index}", column, {}) for column in "ab" for index in range(4)]

    def protocol(self):
        return {"rules": "none"}

    def floors(self):
        return {"guessing": {"a": 50.0}}

    async def attempt(self, item, policy):
        Echo.attempts += 1
        messages = [{"role": "user", "content": item.name}]
        async with policy.talk(f"echo/{item.name}", self.params, messages) as talk:
            reply = await talk.reply()
        won = bool(reply) and ord(reply[0]) % 2 == 0
        return Outcome(item.name, item.column, won, "" if won else "odd", "", {"reply": reply})


class Gone(Echo):
    name = "gone"

    def items(self):
        raise Absent("the file is not here", "pip install gone")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A tiny model in a folder, its tokenizer beside it."""
    values = config.default_config()
    values.model.architecture = {
        "model_type": "qwen3",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "initializer_range": 0.5,
        "tie_word_embeddings": True,
        "vocab_size": 259,
    }
    values.designer.max_tokens = values.hints.max_tokens = values.corpus.max_tokens = 32
    values.agent.update(max_tokens=32, max_episode_tokens=512)
    values.sampler.update(slots=4, context=512, cache_mb=16, decode_steps=4)
    values.learner.update(row_length=512, rows=1, remat=False)
    tiny = config.from_config_dict(values)
    model, _ = loading.load(tiny.model, tiny.seed)
    folder, tokenizer = tmp_path_factory.mktemp("model") / "tiny", make_byte_tokenizer()
    wanted = huggingface.with_tokens(model.config, tokenizer)
    huggingface.save(folder, wanted, nnx.split(model)[1], tokenizer)
    found = dataclasses.replace(tiny.model, source=str(folder))
    return dataclasses.replace(tiny, model=found)


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    Echo.attempts = 0
    known = {"echo": lambda *_: Echo(), "gone": lambda *_: Gone()}
    monkeypatch.setattr(registry, "BENCHMARKS", known)
    monkeypatch.setattr(registry, "GROUPS", {"both": ["echo", "gone"]})


def run(settings, workdir, names=("echo",), checkpoint="", limit=0, out=None):
    """The results, and what was printed."""
    console = Console(width=200, file=io.StringIO())
    wanted = evaluation.Wanted(names, limit)
    results = asyncio.run(evaluation.evaluate(settings, workdir, wanted, checkpoint, out, console))
    return results, console.file.getvalue()


def replies(folder):
    lines = (folder / "items.jsonl").read_text().splitlines()
    return {row["item"]: row["record"]["reply"] for row in map(json.loads, lines)}


def test_a_run_is_continued_and_the_same(settings, tmp_path):
    found, printed = run(settings, tmp_path / "whole")
    assert list(found) == ["echo"]
    whole = tmp_path / "whole" / "evaluation" / "initial" / "echo"
    assert Echo.attempts == 8
    assert "PARTIAL" not in printed

    _, printed = run(settings, tmp_path / "parts", limit=3)
    assert "PARTIAL, 3 of 8" in printed
    parts = tmp_path / "parts" / "evaluation" / "initial" / "echo"
    assert json.loads((parts / "result.json").read_text())["partial"]
    assert Echo.attempts == 8 + 3
    run(settings, tmp_path / "parts")
    assert Echo.attempts == 8 + 8
    assert replies(parts) == replies(whole)
    results = [json.loads((folder / "result.json").read_text()) for folder in (parts, whole)]
    assert results[0] == results[1]
    assert not results[0]["partial"]
    assert results[0]["protocol"]["decoding"]["max_tokens"] == 3


def test_other_weights_are_not_taken_for_the_old_ones(settings, tmp_path):
    run(settings, tmp_path, out=tmp_path / "out")
    other = dataclasses.replace(settings, seed=1)
    with pytest.raises(Mixed, match="seed"):
        run(other, tmp_path, out=tmp_path / "out")


def test_absent_data_is_a_skip_with_the_command(settings, tmp_path):
    found, printed = run(settings, tmp_path, ["both"])
    assert found["gone"] == "the file is not here"
    assert found["echo"]["items"] == 8
    assert found["echo"]["floors"] == {"guessing": {"a": 50.0}}
    assert "guessing" in printed
    assert (
        "gone: SKIPPED, not scored: the file is not here. Get it with: pip install gone" in printed
    )
    assert not (tmp_path / "evaluation" / "initial" / "gone").exists()


def test_unknown_benchmarks_are_named(settings, tmp_path):
    with pytest.raises(config.ConfigError, match=r"--benchmarks=bflc: there are echo, gone, both"):
        run(settings, tmp_path, ["bflc"])


def test_checkpoints_by_step_the_newest_and_none(settings, tmp_path):
    model, _ = policy.load(settings, tmp_path)
    learner = Learner(model, settings.learner, ROLES)
    prints = {"initial": evaluation.fingerprint(learner.params)}
    with Checkpoints(tmp_path / "checkpoints", keep=2) as checkpoints:
        for step in (1, 2):
            learner.params = jax.tree.map(lambda array: 2 * array, learner.params)
            prints[f"step-{step}"] = evaluation.fingerprint(learner.params)
            checkpoints.save(step, learner.state, {})
    assert len(set(prints.values())) == 3
    with RunProgress("test", 1, console=Console(quiet=True)) as progress:
        found = {
            asked: evaluation.load(settings, tmp_path, asked, progress)
            for asked in ("", "1", "2", "initial", f"hf:{settings.model.source}")
        }
        with pytest.raises(CheckpointError, match="complete steps here: 1, 2"):
            evaluation.load(settings, tmp_path, "3", progress)
        with pytest.raises(CheckpointError, match="no checkpoints, so no step 3"):
            evaluation.load(settings, tmp_path / "nowhere", "3", progress)
        with pytest.raises(config.ConfigError, match="give a STEP"):
            evaluation.load(settings, tmp_path, "newest", progress)
    assert [found[asked].name for asked in ("", "1", "2")] == ["step-2", "step-1", "step-2"]
    for asked in ("", "1", "2", "initial"):
        weights = found[asked]
        assert evaluation.fingerprint(weights.params) == prints[weights.name]
    hub = found[f"hf:{settings.model.source}"]
    assert evaluation.fingerprint(hub.params) == prints["initial"]
    assert hub.name.startswith("hf-")


def test_every_checkpoint_is_scored_and_chosen_by_rule(settings, tmp_path, monkeypatch):
    model, _ = policy.load(settings, tmp_path)
    learner = Learner(model, settings.learner, ROLES)
    with Checkpoints(tmp_path / "checkpoints", keep=2) as checkpoints:
        for step in (3, 5):
            learner.params = jax.tree.map(lambda array: 2 * array, learner.params)
            checkpoints.save(step, learner.state, {})

    class Development(Echo):
        name = "reasoning_gym_dev"

    registry.BENCHMARKS["reasoning_gym_dev"] = lambda *_: Development()
    console = Console(width=200, file=io.StringIO())
    wanted = evaluation.Wanted(["echo"])
    found = asyncio.run(trajectory.evaluate_all(settings, tmp_path, wanted, None, console))
    assert list(found) == [3, 5]
    assert all(set(results) == {"echo", "reasoning_gym_dev"} for results in found.values())
    written = json.loads((tmp_path / "evaluation" / "trajectory.json").read_text())
    for step, row in zip((3, 5), written["steps"], strict=True):
        result = tmp_path / "evaluation" / f"step-{step}" / "echo" / "result.json"
        assert row["echo"] == json.loads(result.read_text())["mean"]["mean"]
    assert [choice["rule"] for choice in written["chosen"]][-1] == "last"
    assert written["chosen"][-1]["step"] == 5
    with pytest.raises(CheckpointError, match="train first"):
        asyncio.run(trajectory.evaluate_all(settings, tmp_path / "x", wanted, None, console))


def test_a_policy_that_no_run_has_taught_is_taught_elsewhere(settings, tmp_path, monkeypatch):
    def taught(asked, folder, progress):
        assert asked == wanted
        shutil.copytree(settings.model.source, folder)

    monkeypatch.setattr(evaluation.stage, "taught", taught)
    scratch = dataclasses.replace(settings.model, source="scratch")
    warm_start = dataclasses.replace(settings.warm_start, enabled=True)
    wanted = dataclasses.replace(settings, model=scratch, warm_start=warm_start)
    with RunProgress("test", 1, console=Console(quiet=True)) as progress:
        found = evaluation.load(wanted, tmp_path, "", progress)
        same = evaluation.load(settings, tmp_path, "initial", progress)
    assert evaluation.fingerprint(found.params) == evaluation.fingerprint(same.params)
    assert not list(tmp_path.iterdir())


def test_the_command_scores_bfcl(settings, tmp_path):
    """The tiny model has no room for the functions: a loss each, listed."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "spade_jax.evaluate", "--config=configs/laptop.py:hf"),
            *("--benchmarks=bfcl_multi_turn", "--limit=4", "--context=512", "--config.seed=3"),
            *(f"--checkpoint=hf:{settings.model.source}", f"--workdir={tmp_path}"),
            f"--out={tmp_path}/out",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "PARTIAL, 4 of 800" in done.stdout
    result = json.loads((tmp_path / "out" / "bfcl_multi_turn" / "result.json").read_text())
    assert len(result["faults"]) == 4
    assert all(fault.endswith("of at most 512") for fault in result["faults"].values())
    protocol = result["protocol"]
    assert protocol["data"] == bfcl.DIGEST
    assert protocol["decoding"]["temperature"] == 0.001
    assert protocol["policy"]["seed"] == 3


@contextlib.asynccontextmanager
async def chat_server(answer):
    """A server that answers ``answer(messages)``: its URL, and the requests so far."""
    asked = []

    async def complete(request):
        asked.append(await request.json())
        message = {"role": "assistant", "content": answer(asked[-1]["messages"])}
        return web.json_response({"choices": [{"message": message}]})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", complete)
    server = web.AppRunner(application, shutdown_timeout=0.1)
    await server.setup()
    site = web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1", asked
    finally:
        await server.cleanup()


def oracle_of_acebench(messages):
    """What wins the tasks of ``acebench_items``, in either role, by what it was shown."""
    system, shown = (message["content"] for message in messages[:2])
    for question, _ in acebench_items.STEPS + acebench_items.TURNS:
        name = question["id"]
        if question["question"] in system:
            replies = sum(message["role"] == "assistant" for message in messages)
            return acebench_items.USERS[name][replies]
        if f"user:{question['question']}" in shown:
            return acebench_items.ORACLE[name][shown.count("execution result:")]
        if name in acebench_items.USERS and f"user:{acebench_items.USERS[name][0]}" in shown:
            return acebench_items.ORACLE[name][shown.count("\nagent:")]
    raise AssertionError(messages)


def test_acebench_at_an_endpoint_is_continued_and_skipped_without_its_data(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "BENCHMARKS", {"acebench_agent": ACEBenchAgent})
    monkeypatch.setattr(acebench_data, "COUNTS", {"multi_step": 3, "multi_turn": 2})
    settings = config.from_config_dict(config.default_config())
    data, out = tmp_path / "data", tmp_path / "out"

    async def evaluate(url, limit=0):
        wanted = evaluation.Wanted(["acebench_agent"], limit, data)
        console = Console(width=200, file=io.StringIO())
        found = await evaluation.evaluate_endpoint(settings, out, wanted, url, "m", out, console)
        return found["acebench_agent"], " ".join(console.file.getvalue().split())

    async def go():
        async with chat_server(oracle_of_acebench) as (url, asked):
            reason, printed = await evaluate(url)
            assert reason.startswith("no file")
            assert "acebench_agent: SKIPPED, not scored: no file" in printed
            assert "Get it with: git clone" in printed
            assert not asked
            acebench_items.write(data)
            _, printed = await evaluate(url, limit=2)
            assert "PARTIAL, 2 of 5" in printed
            first = len(asked)
            assert first
            summary, printed = await evaluate(url)
            assert (summary["tried"], summary["mean"]["mean"], summary["faults"]) == (5, 1, {})
            assert "ACEBench-Agent (local user simulator)" in printed
            both = [*acebench_items.ORACLE.values(), *acebench_items.USERS.values()]
            assert len(asked) == sum(map(len, both)) > first
            assert {request["max_tokens"] for request in asked} == {4096, 1000}
            await evaluate(url)
            assert len(asked) == sum(map(len, both))

    asyncio.run(go())

"""Who plays the user: the policy or a server; what results are called; whose silence it is."""

import asyncio

import pytest
from aiohttp import web

from spade_jax.benchmarks import user
from spade_jax.benchmarks.interface import Unanswered
from spade_jax.sampling.interface import SamplingParams
from tests.benchmarks.scripted_policy import ScriptedPolicy

PARAMS = SamplingParams(max_tokens=5, temperature=0.0)
SYSTEM = [{"role": "system", "content": "You are a customer."}]


def speak(simulator, player):
    async def go():
        async with simulator.talk(player, "b/1", PARAMS, SYSTEM) as talk:
            return await talk.reply()

    return asyncio.run(go())


def test_the_policy_itself_is_a_local_simulator_under_a_name_of_its_own():
    player = ScriptedPolicy(lambda name: [f"I am {name}"])
    assert speak(user.SELF, player) == "I am b/1/user"
    assert player.told == {"b/1/user": SYSTEM}
    assert user.SELF.protocol() == {
        "user": "the policy itself",
        "label": "local user simulator",
    }


def test_another_policy_plays_the_user():
    other = ScriptedPolicy(lambda name: ["hello"])
    player = ScriptedPolicy(lambda name: [])
    simulator = user.User(other, "m", "http://h/v1")
    assert speak(simulator, player) == "hello"
    assert not player.told
    assert simulator.protocol()["user"] == {
        "model": "m",
        "url": "http://h/v1",
        "prompts": {"script": "test"},
    }


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("gpt-4.1", ""),
        ("openai/gpt-4.1", ""),
        ("gpt-4.1-2025-04-14", ""),
        ("gpt-4.1-mini", "user simulator gpt-4.1-mini"),
        ("Qwen3-30B-A3B", "user simulator Qwen3-30B-A3B"),
    ],
)
def test_only_the_papers_user_compares(model, label):
    simulator = user.User(ScriptedPolicy(lambda name: []), model)
    assert simulator.label == label
    assert simulator.protocol().get("label", "") == label


def test_silence_is_named_as_the_users():
    with pytest.raises(Unanswered, match=r"^user: context"):
        speak(user.SELF, ScriptedPolicy(lambda name: []))


def test_a_server_plays_the_user_with_a_key_of_its_own(monkeypatch):
    monkeypatch.setenv(user.KEY, "the users")
    seen = []

    async def complete(request):
        seen.append((request.headers.get("Authorization"), await request.json()))
        message = {"role": "assistant", "content": "I want my money back."}
        return web.json_response({"choices": [{"message": message}]})

    async def models(_):
        return web.json_response({"data": [{"id": "first"}]})

    async def go():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", complete)
        app.router.add_get("/v1/models", models)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"
        try:
            async with user.at(url, "", seed=1, timeout=5.0) as simulator:
                assert simulator.protocol()["user"]["model"] == "first"
                assert simulator.protocol()["user"]["url"] == url
                player = ScriptedPolicy(lambda name: [])
                async with simulator.talk(player, "b/1", PARAMS, SYSTEM) as talk:
                    return await talk.reply()
        finally:
            await runner.cleanup()

    assert asyncio.run(go()) == "I want my money back."
    ((key, body),) = seen
    assert key == "Bearer the users"
    assert (body["model"], body["messages"], body["max_tokens"]) == ("first", SYSTEM, 5)


def test_without_a_server_it_is_the_policy():
    async def go():
        async with user.at("", "", 0, 1.0) as simulator:
            return simulator

    assert asyncio.run(go()) is user.SELF

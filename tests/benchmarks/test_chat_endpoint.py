"""A chat server as a policy: what is sent, tried again, refused, given up."""

import asyncio
import json

import pytest
from aiohttp import web

from spade_jax.benchmarks import endpoint, in_words
from spade_jax.benchmarks.endpoint import KEY, EndpointPolicy
from spade_jax.benchmarks.interface import Broken, Unanswered
from spade_jax.sampling.interface import SamplingParams

PARAMS = SamplingParams(max_tokens=7, temperature=0.6, top_p=0.8, top_k=20)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(endpoint, "PAUSE", 0.001)
    monkeypatch.setattr(endpoint, "LONGEST_PAUSE", 0.002)


def serve(answers, use, model="m", timeout=5.0):
    """``use(policy)`` against a server that gives ``answers``: its result, and the requests."""
    seen, left = [], list(answers)

    async def complete(request):
        seen.append((request.headers.get("Authorization"), await request.json()))
        answer = left.pop(0) if left else 500
        if isinstance(answer, int):
            return web.Response(status=answer, text="no")
        if answer is None:
            await asyncio.sleep(60)
        message = {"role": "assistant", "content": answer}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    async def models(_):
        return web.json_response({"data": [{"id": "first"}, {"id": "second"}]})

    async def go():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", complete)
        app.router.add_get("/v1/models", models)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        try:
            url = f"http://127.0.0.1:{port}/v1/"
            async with EndpointPolicy(url, model, seed=3, timeout=timeout) as policy:
                return await use(policy)
        finally:
            await runner.cleanup()

    return asyncio.run(go()), seen


async def one(policy):
    async with policy.talk("b/1", PARAMS, [{"role": "user", "content": "hi"}]) as talk:
        return await talk.reply()


def test_what_is_sent(monkeypatch):
    monkeypatch.setenv(KEY, "secret")
    reply, seen = serve(["hello"], one)
    assert reply == "hello"
    ((key, body),) = seen
    assert key == "Bearer secret"
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    expected = {"model": "m", "max_tokens": 7, "temperature": 0.6, "top_p": 0.8, "top_k": 20}
    assert expected.items() <= body.items()
    assert "min_p" not in body
    _, again = serve(["hello"], one)
    assert again[0][1]["seed"] == body["seed"]


def test_a_dialogue_grows_and_tools_are_told_in_words():
    tool = {"name": "look", "description": "Looks.", "parameters": {"type": "dict"}}

    async def use(policy):
        first = [{"role": "user", "content": "hi"}]
        async with policy.talk("b/1", PARAMS, first, [tool]) as talk:
            await talk.reply()
            talk.tell([{"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}])
            return await talk.reply()

    _, seen = serve(["x", "y"], use)
    one, two = (body for _, body in seen)
    assert json.dumps(tool) in one["messages"][0]["content"]
    assert [message["role"] for message in two["messages"]] == ["user", "assistant", "user"]
    told = in_words.told([{"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}])
    assert two["messages"][2:] == told
    assert one["seed"] != two["seed"]


def test_passing_trouble_is_tried_again():
    reply, seen = serve([429, 503, "hello"], one)
    assert reply == "hello"
    assert len(seen) == 3


def test_a_refused_dialogue_is_the_loss_of_its_item():
    with pytest.raises(Unanswered, match="status 400: no"):
        serve([400], one)


@pytest.mark.parametrize(("answers", "reason"), [([401], "status 401"), ([], "status 500")])
def test_a_server_that_answers_nobody_ends_the_evaluation(answers, reason):
    with pytest.raises(Broken, match=reason):
        serve(answers, one)


def test_a_silent_server_is_given_up(monkeypatch):
    monkeypatch.setattr(endpoint, "TRIES", 2)
    with pytest.raises(Broken, match="Timeout"):
        serve([None, None], one, timeout=0.1)


def test_the_first_model_is_taken_where_none_is_named():
    async def use(policy):
        return policy.model

    model, _ = serve([], use, model="")
    assert model == "first"

"""What a benchmark says reaches the sampler as the chat template has it, tools or not."""

import asyncio
import json

import pytest

from spade_jax.benchmarks.interface import Broken, Unanswered
from spade_jax.benchmarks.policy import SamplerPolicy
from spade_jax.sampling.interface import SamplingParams
from spade_jax.sampling.rendering import Renderer
from tests.conftest import ScriptedSampler
from tests.selfplay.tool_templates import make_tool_tokenizer

TOOLS = [{"name": "pwd", "description": "Where?", "parameters": {"type": "dict"}}]
USER = [{"role": "user", "content": "Where am I?"}]
ANSWERS = [{"role": "tool", "content": "/a"}, {"role": "tool", "content": "/b"}]
PARAMS = SamplingParams(max_tokens=30, temperature=0.5)


def two_replies(renderer, context=100_000, write=lambda request, prompt: "reply"):
    """The requests of a dialogue of two replies."""
    sampler = ScriptedSampler(renderer, write)
    policy = SamplerPolicy(sampler, renderer, context)

    async def go():
        async with policy.talk("b/item", PARAMS, USER, TOOLS) as talk:
            first = await talk.reply()
            talk.tell(ANSWERS)
            return first, await talk.reply()

    return asyncio.run(go()), sampler, policy


def test_tools_go_through_a_template_that_shows_them():
    tokenizer = make_tool_tokenizer()
    replies, sampler, policy = two_replies(Renderer(tokenizer))
    assert replies == ("reply", "reply")
    talk = [*USER, {"role": "assistant", "content": "reply"}, *ANSWERS]
    for request, length in zip(sampler.requests, (1, 4), strict=True):
        expected = tokenizer.apply_chat_template(
            talk[:length], tools=TOOLS, add_generation_prompt=True, return_dict=False
        )
        assert list(request.tokens) == expected
    assert [request.uid for request in sampler.requests] == ["b/item/0", "b/item/1"]
    assert sampler.released == ["b/item"]
    assert policy.protocol()["tools"] == "chat template"


def test_tools_are_told_in_words_where_the_template_has_no_place(renderer):
    _, sampler, policy = two_replies(renderer)
    first, second = (renderer.decode(request.tokens) for request in sampler.requests)
    assert json.dumps(TOOLS[0]) in first
    assert USER[0]["content"] in first
    assert "<tool_response>\n/a\n</tool_response>\n<tool_response>\n/b\n" in second
    assert policy.protocol()["tools"] == "in words"


def test_replies_end_where_the_context_does(renderer):
    _, sampler, _ = two_replies(renderer)
    first, second = sampler.requests
    room = 7
    _, sampler, _ = two_replies(renderer, context=len(second.tokens) + room)
    assert [request.params.max_tokens for request in sampler.requests] == [30, room]
    with pytest.raises(Unanswered, match="context"):
        two_replies(renderer, context=len(second.tokens))
    assert first.params.stop_ids == renderer.stop_ids


def test_refusals_and_failures_are_told_apart(renderer):
    with pytest.raises(Unanswered, match="refused: too long"):
        two_replies(renderer, write=lambda request, prompt: ("too long", "refused"))

    def fail(request, prompt):
        raise OSError("no device")

    with pytest.raises(Broken, match="no device"):
        two_replies(renderer, write=fail)


def test_protocol_tells_templates_apart(renderer):
    other = make_tool_tokenizer()
    other.chat_template = other.chat_template.replace("'\\n' + m.content", "' ' + m.content")
    protocols = [
        SamplerPolicy(None, Renderer(tokenizer), 100).protocol()
        for tokenizer in (make_tool_tokenizer(), other)
    ]
    assert protocols[0]["template"] != protocols[1]["template"]

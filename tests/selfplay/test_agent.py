"""What was sampled is what is trained; faults are told apart; the arms differ in the hint."""

import asyncio
import dataclasses

import pytest

from spade_jax import config
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.faults import EnvironmentFault, HostFault
from spade_jax.sandbox.host import StepResult
from spade_jax.selfplay.agent import Agent, Episode
from spade_jax.selfplay.state import Environment, Sample

SETTINGS = config.Agent(max_tokens=40, max_turns=5, max_episode_tokens=2000, temperature=1.0)
ENVIRONMENT = Environment(
    "f" * 64, "name", "Optimization", 0, 0, "source", "", [], Sample([], [], []), hint="Go up."
)


class FakeHost:
    """An environment that counts up and ends the episode at ``length`` steps."""

    def __init__(self, length=3, fault=None):
        self.length, self.fault = length, fault
        self.actions, self.open_handles, self.seeds = [], set(), []

    async def open(self, source, max_turns=None):
        self.open_handles.add(7)
        return 7

    async def reset(self, handle, seed):
        self.seeds.append(seed)
        return "Where now?"

    async def step(self, handle, action):
        if self.fault:
            raise self.fault
        self.actions.append(action)
        done = len(self.actions) == self.length
        return StepResult(f"seen {len(self.actions)}", 0.5, done, False)

    async def close(self, handle):
        self.open_handles.discard(handle)


def play(sampler, host, renderer, arm="plain", settings=SETTINGS):
    agent = Agent(sampler, host, renderer, settings, "small")
    episode = Episode(ENVIRONMENT, 0, arm, seed=11, play=0)
    return asyncio.run(agent.play(episode))


def test_tokens_are_the_template_of_the_dialogue(renderer, scripted, byte_tokenizer):
    replies = iter([r"I go \boxed{up}", r"\boxed{left}", r"\boxed{down}"])
    host = FakeHost()
    episode = play(scripted(renderer, lambda *_: next(replies)), host, renderer)
    assert episode.status == "terminated"
    assert episode.episode_return == 0.5
    assert host.actions == [r"\boxed{up}", r"\boxed{left}", r"\boxed{down}"]
    assert host.seeds == [11]
    (sample,) = episode.samples
    dialogue = [
        {"role": "user", "content": "Where now?"},
        {"role": "assistant", "content": r"I go \boxed{up}"},
        {"role": "user", "content": "seen 1"},
        {"role": "assistant", "content": r"\boxed{left}"},
        {"role": "user", "content": "seen 2"},
        {"role": "assistant", "content": r"\boxed{down}"},
    ]
    whole = byte_tokenizer.apply_chat_template(dialogue, return_dict=False)
    assert sample.tokens == whole[: len(sample.tokens)]
    assert renderer.decode(whole[len(sample.tokens) :]).strip() == ""


def test_exactly_the_sampled_tokens_are_trained_with_their_log_probs(renderer, scripted):
    sampler = scripted(renderer, lambda *_: r"\boxed{up}")
    episode = play(sampler, FakeHost(), renderer)
    (sample,) = episode.samples
    reply = renderer.reply(r"\boxed{up}")
    assert sum(sample.trained) == 3 * len(reply)
    trained = [t for t, flag in zip(sample.tokens, sample.trained, strict=True) if flag]
    assert trained == reply * 3
    assert sample.logp == [-0.5 if flag else 0.0 for flag in sample.trained]
    # Each request holds all that came before: the sampler can reuse its prefix.
    prompts = [request.tokens for request in sampler.requests]
    assert len({request.uid for request in sampler.requests}) == 3
    assert {request.session for request in sampler.requests} == {episode.uid}
    assert len(prompts) == 3
    assert sampler.released == [episode.uid]


def test_the_hint_is_all_that_differs(renderer, scripted):
    samplers = [scripted(renderer, lambda *_: "x") for _ in range(2)]
    for sampler, arm in zip(samplers, ("plain", "hinted"), strict=True):
        play(sampler, FakeHost(), renderer, arm)
    plain, hinted = (renderer.decode(sampler.requests[0].tokens) for sampler in samplers)
    assert hinted == plain.replace("Where now?", "Where now?\n\nHINT: Go up.")
    first, second = (sampler.requests[0].params for sampler in samplers)
    assert first == second


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (EnvironmentFault("raised", "it fell over"), "environment_fault"),
        (HostFault("zygote gone"), "host_fault"),
    ],
)
def test_faults_are_never_scored(renderer, scripted, fault, status):
    host = FakeHost(fault=fault)
    episode = play(scripted(renderer, lambda *_: "x"), host, renderer)
    assert episode.status == status
    assert str(fault) in episode.fault
    assert not episode.scored
    assert not host.open_handles


def test_a_refused_request_is_not_scored(renderer, scripted):
    episode = play(scripted(renderer, lambda *_: ("too long", "refused")), FakeHost(), renderer)
    assert (episode.status, episode.fault, episode.scored) == ("refused", "too long", False)


def test_a_cut_reply_is_trained_but_not_played(renderer, scripted):
    host = FakeHost()
    episode = play(scripted(renderer, lambda *_: ("bla bla", "length")), host, renderer)
    assert (episode.status, episode.episode_return, episode.scored) == ("length", 0.0, True)
    assert host.actions == []
    assert sum(episode.samples[0].trained) == len(renderer.text("bla bla"))


def test_turn_and_token_limits(renderer, scripted):
    sampler = scripted(renderer, lambda *_: "x")
    episode = play(sampler, FakeHost(length=99), renderer)
    assert (episode.status, len(episode.turns), episode.episode_return) == ("turn_limit", 5, 0.0)
    small = dataclasses.replace(SETTINGS, max_episode_tokens=60)
    sampler = scripted(renderer, lambda *_: "x")
    episode = play(sampler, FakeHost(length=99), renderer, settings=small)
    assert episode.status == "length"
    for request in sampler.requests:
        assert len(request.tokens) + request.params.max_tokens <= 60


def test_a_template_that_rewrites_history_gives_a_sample_a_turn(byte_tokenizer, scripted):
    import copy

    tokenizer = copy.deepcopy(byte_tokenizer)
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "{{ message['content'] }}", "{{ message['content'].split('</think>')[-1] }}"
    )
    renderer = Renderer(tokenizer)
    assert not renderer.append_only
    reply = r"<think>hm</think>\boxed{up}"
    episode = play(scripted(renderer, lambda *_: reply), FakeHost(), renderer)
    assert len(episode.samples) == 3
    for sample in episode.samples:
        trained = [t for t, flag in zip(sample.tokens, sample.trained, strict=True) if flag]
        assert trained == renderer.reply(reply)
    last = renderer.decode(episode.samples[-1].tokens)
    assert last.count("<think>") == 1
    assert last.count(r"\boxed{up}") == 3

"""What was sampled is what is trained; faults are told apart; the arms differ in the hint."""

import asyncio
import dataclasses

import pytest

from spade_jax import config
from spade_jax.learner.step import Learner
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.interface import Completion
from spade_jax.sampling.native.sampler import NativeSampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.faults import EnvironmentFault, HostFault
from spade_jax.sandbox.host import EnvironmentHost, StepResult
from spade_jax.selfplay import batch
from spade_jax.selfplay.agent import Agent, Conversation, Episode
from spade_jax.selfplay.state import Environment, Sample
from tests.sampling import tokenizers_for_tests

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
    assert sample.versions == [0 if flag else -1 for flag in sample.trained]
    # Each request holds all that came before: the sampler can reuse its prefix.
    prompts = [request.tokens for request in sampler.requests]
    assert len({request.uid for request in sampler.requests}) == 3
    assert {request.session for request in sampler.requests} == {episode.uid}
    assert len(prompts) == 3
    assert sampler.released == [episode.uid]


def test_a_dialogue_has_the_experts_of_its_last_message(renderer):
    """A completion names those of all tokens before it too."""
    conversation = Conversation(renderer, [{"role": "user", "content": "a"}])
    for recorded in ("first", "second"):
        conversation.sampled(Completion([1], [-0.5], "stop", 0, experts=recorded))
        conversation.observed([{"role": "user", "content": "b"}])
    (sample,) = conversation.samples
    assert sample.experts == "second"
    assert sum(sample.trained) == 2


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


THOUGHT = "<think>\nhm\n</think>\n\n\\boxed{up}"


@pytest.fixture(scope="module")
def thinking():
    """A renderer of Qwen3's template with thinking on."""
    tokenizer = tokenizers_for_tests.make("qwen3")
    return Renderer(tokenizer, template_options={"enable_thinking": True})


def test_thinking_is_kept_in_its_turn_and_gone_from_later_ones(thinking, scripted):
    host = FakeHost()
    sampler = scripted(thinking, lambda *_: THOUGHT)
    episode = play(sampler, host, thinking)
    assert host.actions == ["\\boxed{up}"] * 3
    assert len(episode.samples) == 3
    for turn, (sample, request) in enumerate(zip(episode.samples, sampler.requests, strict=True)):
        assert sample.tokens == [*request.tokens, *thinking.reply(THOUGHT)]
        assert sum(sample.trained) == len(thinking.reply(THOUGHT))
        history = thinking.decode(request.tokens)
        assert history.count("\\boxed{up}") == turn
        assert "think" not in history


def test_a_reply_cut_inside_its_thinking_loses_the_episode_and_is_trained(thinking, scripted):
    host = FakeHost()
    episode = play(scripted(thinking, lambda *_: ("<think>\nhm, hm", "length")), host, thinking)
    assert (episode.status, episode.episode_return, episode.scored) == ("length", 0.0, True)
    assert host.actions == []
    assert sum(episode.samples[0].trained) == len(thinking.text("<think>\nhm, hm"))


def test_a_reply_that_never_leaves_its_thinking_is_no_action(thinking, scripted):
    host = FakeHost()
    play(scripted(thinking, lambda *_: "<think>\n\\boxed{up}"), host, thinking)
    assert host.actions == [""] * 3


def test_the_token_budget_is_that_of_one_turns_context(thinking, scripted):
    """Thinking counts in its own turn, and no more once the template has dropped it."""
    long = f"<think>\n{'hm ' * 40}\n</think>\n\nx"
    spent = len(thinking.reply(long))
    settings = dataclasses.replace(SETTINGS, max_tokens=400, max_episode_tokens=spent + 80)
    sampler = scripted(thinking, lambda *_: long)
    episode = play(sampler, FakeHost(length=3), thinking, settings=settings)
    assert episode.status == "terminated"
    assert 3 * spent > settings.max_episode_tokens
    for request in sampler.requests:
        assert request.params.max_tokens == settings.max_episode_tokens - len(request.tokens)


COUNTING = """
class CountEnv:
    def __init__(self, max_turns=5):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.count = 0
        return f"go {seed}", {}

    def step(self, action):
        self.count += 1
        good = action == "\\\\boxed{up}"
        return f"seen {self.count}", float(good), self.count == 3, False, {}
"""
SMALL = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "max_position_embeddings": 1024,
    "rope_theta": 1e4,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


@pytest.mark.slow
def test_thinking_from_sampler_to_learner(thinking, scripted):
    """A small Qwen3 that thinks: what the learner scores is what the sampler sampled, turn by turn.

    The model is first taught one thinking reply in the places where it stands in episodes.
    """
    vocabulary = len(tokenizers_for_tests.make("qwen3"))
    architecture = ModelConfig.from_hf(SMALL | {"vocab_size": vocabulary})
    model = build(architecture, config.Model(), 0)
    learner = Learner(model, config.Learner(row_length=128, rows=4, remat=False), batch.ROLES)
    environment = dataclasses.replace(ENVIRONMENT, source=COUNTING)
    settings = config.Config(agent=dataclasses.replace(SETTINGS, max_episode_tokens=128))

    async def played(sampler, seeds):
        episodes = [Episode(environment, 0, arm, seed, play)
                    for arm in ("plain", "hinted") for play, seed in enumerate(seeds)]  # fmt: skip
        async with EnvironmentHost(config.Sandbox()) as host:
            agent = Agent(sampler, host, thinking, settings.agent, "small")
            await asyncio.gather(*(agent.play(episode) for episode in episodes))
        return episodes

    def trajectories(episodes):
        plain = [dataclasses.replace(episode, arm="plain") for episode in episodes]
        found = batch.agent_trajectories(plain, settings)
        # Equal returns have no advantage and would get no pass.
        return [dataclasses.replace(item, advantage=1.0) for item in found]

    lesson = trajectories(asyncio.run(played(scripted(thinking, lambda *_: THOUGHT), [1])))
    for _ in range(40):
        learner.supervise(lesson, 1e-2)

    sampler = NativeSampler(model, config.Sampler(slots=8, context=128, cache_mb=1), 3)
    sampler.update(learner.params, 1)
    episodes = asyncio.run(played(sampler, [1, 2, 3]))
    multiple = [episode for episode in episodes if len(episode.samples) > 1]
    assert multiple, [episode.status for episode in episodes]
    assert any("<think>" in turn.reply for episode in multiple for turn in episode.turns)
    for plain, hinted in zip(episodes[:3], episodes[3:], strict=True):
        first, second = (
            [t for t, flag in zip(item.samples[0].tokens, item.samples[0].trained, strict=True)
             if not flag] for item in (plain, hinted)
        )  # fmt: skip
        hint = thinking.decode(second).replace("\n\nHINT: Go up.", "")
        assert hint == thinking.decode(first)
    found = trajectories(episodes)
    assert sum(item.weight for item in found) == pytest.approx(len(episodes))
    metrics = learner.update(found)
    assert metrics["logp_gap/max"] < 1e-3
    assert metrics["trained_tokens"] == sum(
        sum(sample.trained) for episode in episodes for sample in episode.samples
    )

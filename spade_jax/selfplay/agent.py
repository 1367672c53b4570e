"""The agent plays an instance: an append-only token list, turn by turn."""

import collections
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax import config
from spade_jax.environments import parsing
from spade_jax.sampling.interface import Completion, Request, Sampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.faults import EnvironmentFault, HostFault
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay import prompts, rewards
from spade_jax.selfplay.decoding import sampling_params
from spade_jax.selfplay.ledger import Arm
from spade_jax.selfplay.state import Environment, Sample

# How an episode ended. The first four are scored; a fault is never a loss of the agent.
SCORED = ("terminated", "truncated", "turn_limit", "length")


@dataclasses.dataclass(frozen=True)
class Turn:
    """One agent message and the environment's answer to it."""

    reply: str
    action: str
    observation: str
    reward: float


@dataclasses.dataclass
class Episode:
    """One play of an instance.

    Attributes:
      status: 'terminated', 'truncated' (by the environment), 'turn_limit', 'length' (reply or
        episode out of tokens), 'environment_fault', 'host_fault' or 'refused' (by the sampler).
      calls: tool calls by what became of them (``tool_agent.OUTCOMES``); empty in games.
      samples: token sequences to train on: one, or one a turn where the chat template rewrites
        history.
    """

    environment: Environment
    iteration: int
    arm: Arm
    seed: int
    play: int
    status: str = "turn_limit"
    fault: str = ""
    observation: str = ""
    calls: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    turns: list[Turn] = dataclasses.field(default_factory=list)
    samples: list[Sample] = dataclasses.field(default_factory=list)

    @property
    def scored(self) -> bool:
        return self.status in SCORED

    @property
    def episode_return(self) -> float:
        paid = [turn.reward for turn in self.turns]
        return rewards.episode_return(paid, self.status == "terminated")

    @property
    def hint(self) -> str | None:
        """What the agent is shown besides the first observation: the arms differ in this alone."""
        shown = {"hinted": self.environment.hint, "placebo": self.environment.placebo}
        return shown.get(self.arm)

    def result(self) -> dict[str, Any]:
        """What playing it has made of it, as JSON can hold it."""
        return {
            "status": self.status,
            "fault": self.fault,
            "observation": self.observation,
            "calls": self.calls,
            "turns": [dataclasses.asdict(turn) for turn in self.turns],
            "samples": [dataclasses.asdict(sample) for sample in self.samples],
        }

    def take(self, result: Mapping[str, Any]) -> None:
        """Fills it in with the result of an equal episode that was played elsewhere."""
        self.status, self.fault = result["status"], result["fault"]
        self.observation = result["observation"]
        self.calls = collections.Counter(result["calls"])
        self.turns = [Turn(**turn) for turn in result["turns"]]
        self.samples = [Sample(**sample) for sample in result["samples"]]

    @property
    def uid(self) -> str:
        return f"{self.iteration}/{self.environment.sha[:16]}/{self.arm}/{self.play}"


class Agent:
    """Plays episodes with the current policy."""

    def __init__(
        self,
        sampler: Sampler,
        host: Host,
        renderer: Renderer,
        settings: config.Agent,
        prompt_set: str,
    ):
        self._sampler = sampler
        self._host = host
        self._renderer = renderer
        self._settings = settings
        self._prompt_set = prompt_set

    async def play(self, episode: Episode) -> Episode:
        """Plays ``episode`` to its end, filling it in. Faults become its status."""
        async with self._sampler.party():
            try:
                await self._play(episode)
            except EnvironmentFault as fault:
                episode.status, episode.fault = "environment_fault", str(fault)
            except HostFault as fault:
                episode.status, episode.fault = "host_fault", str(fault)
            finally:
                self._sampler.release(episode.uid)
        return episode

    async def _play(self, episode: Episode) -> None:
        handle = await self._host.open(episode.environment.source, self._settings.max_turns)
        try:
            episode.observation = await self._host.reset(handle, episode.seed)
            conversation = await self._begin(episode, handle)
            for _ in range(self._settings.max_turns):
                if not await self._turn(episode, conversation, handle):
                    break
            episode.samples = conversation.samples
        finally:
            with contextlib.suppress(HostFault):
                await self._host.close(handle)

    async def _begin(self, episode: Episode, handle: int) -> "Conversation":
        """The dialogue up to the agent's first message."""
        return Conversation(
            self._renderer,
            prompts.agent(self._prompt_set, observation=episode.observation, hint=episode.hint),
        )

    async def _turn(self, episode: Episode, conversation: "Conversation", handle: int) -> bool:
        """One message and its answer; True if the episode goes on."""
        settings = self._settings
        room = settings.max_episode_tokens - len(conversation.tokens)
        if room <= 0:
            episode.status = "length"
            return False
        params = sampling_params(settings, self._renderer, room)
        uid = f"{episode.uid}/{len(episode.turns)}"
        request = Request(list(conversation.tokens), params, uid, session=episode.uid)
        (completion,) = await self._sampler.generate([request])
        if completion.finish_reason == "refused":
            episode.status, episode.fault = "refused", completion.refusal
            return False
        conversation.sampled(completion)
        if completion.finish_reason == "length":
            episode.status = "length"
            return False
        reply = self._renderer.decode(completion.tokens)
        return await self._answer(episode, conversation, handle, reply)

    async def _answer(
        self, episode: Episode, conversation: "Conversation", handle: int, reply: str
    ) -> bool:
        """The environment's answer to a message; True if the episode goes on."""
        action = parsing.parse_action(reply)
        result = await self._host.step(handle, action)
        episode.turns.append(Turn(reply, action, result.observation, result.reward))
        if result.terminated or result.truncated:
            episode.status = "terminated" if result.terminated else "truncated"
            return False
        conversation.observed([{"role": "user", "content": result.observation}])
        return True


class Conversation:
    """Token ids of a dialogue: what was sampled is what is kept, never decoded and re-encoded.

    Where the chat template rewrites earlier turns (it drops thinking, say), each turn is a sample
    of its own: the rendered history, untrained, and the reply.
    """

    def __init__(
        self,
        renderer: Renderer,
        messages: list[dict[str, str]],
        tools: Sequence[Mapping[str, Any]] = (),
    ):
        self.tools = tools
        self._renderer = renderer
        self._messages = list(messages)
        self._reply: list[int] = []
        self.samples = [_start(renderer.prompt(messages, tools))]

    @property
    def tokens(self) -> list[int]:
        return self.samples[-1].tokens

    def sampled(self, completion: Completion) -> None:
        """The policy's message, stop token included."""
        self._reply = completion.tokens
        versions = completion.token_versions
        _append(self.samples[-1], completion.tokens, True, completion.logp, versions)
        # A completion's are those of the whole dialogue so far.
        self.samples[-1] = dataclasses.replace(self.samples[-1], experts=completion.experts)

    def untrain(self) -> None:
        """The last message is not to be learned from."""
        trained = self.samples[-1].trained
        trained[len(trained) - len(self._reply) :] = [False] * len(self._reply)

    def observed(self, answers: list[dict[str, str]]) -> None:
        """The environment's answer, in one message or several."""
        if self._renderer.append_only:
            tokens = self._renderer.extend(self._reply, answers)
            count = len(tokens)
            _append(self.samples[-1], tokens, False, [0.0] * count, [-1] * count)
            return
        reply = {"role": "assistant", "content": self._renderer.decode(self._reply)}
        self._messages += [reply, *answers]
        self.samples.append(_start(self._renderer.prompt(self._messages, self.tools)))


def _start(tokens: list[int]) -> Sample:
    count = len(tokens)
    return Sample(list(tokens), [False] * count, [0.0] * count, [-1] * count)


def _append(
    sample: Sample,
    tokens: Sequence[int],
    trained: bool,
    logp: Sequence[float],
    versions: Sequence[int],
) -> None:
    sample.tokens.extend(tokens)
    sample.trained.extend([trained] * len(tokens))
    sample.logp.extend(logp)
    sample.versions.extend(versions)

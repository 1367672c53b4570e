"""The designer writes an environment set: document, memory, prompt, program, validation."""

import asyncio
import dataclasses
import hashlib
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax import config
from spade_jax.data.corpus import Document
from spade_jax.environments import parsing, validation
from spade_jax.sampling.interface import Completion, Request, Sampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.faults import HostFault
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay import schedule
from spade_jax.selfplay.decoding import sampling_params
from spade_jax.selfplay.exchange import Alone, Exchange, dealt
from spade_jax.selfplay.memory import Memory, Record
from spade_jax.selfplay.review import Program, Review, review
from spade_jax.selfplay.setting import setting_of
from spade_jax.selfplay.state import Environment, Invalid, Sample


@dataclasses.dataclass(frozen=True)
class Slot:
    """The place of one environment in the set."""

    index: int
    skill: str


@dataclasses.dataclass
class Attempt:
    """One try at filling a slot. ``outcome`` is 'accepted' or the name of what refused it."""

    slot: Slot
    number: int
    document: Document | None
    exemplars: list[Record]
    prompt: list[int]
    outcome: str = "unfinished"
    reason: str = ""
    reply: str = ""
    source: str = ""
    sample: Sample | None = None
    report: validation.Report | None = None

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Attempt":
        """Inverse of ``dataclasses.asdict``."""
        document, sample, report = row["document"], row["sample"], row["report"]
        parts = {
            "slot": Slot(**row["slot"]),
            "document": Document(**document) if document else None,
            "exemplars": [Record(**record) for record in row["exemplars"]],
            "sample": Sample(**sample) if sample else None,
            "report": validation.Report.from_json(report) if report else None,
        }
        return cls(**{**row, **parts})


class Designer:
    """Fills slots with environments. Attempts of one round are sampled together."""

    def __init__(
        self,
        sampler: Sampler,
        host: Host,
        renderer: Renderer,
        settings: config.Config,
        exchange: Exchange | None = None,
    ):
        self._sampler = sampler
        self._host = host
        self._renderer = renderer
        self._settings = settings
        self._exchange = exchange or Alone()
        self._prompts = setting_of(settings).prompts

    async def write(
        self,
        slots: Sequence[Slot],
        iteration: int,
        documents: Sequence[Document | None],
        memory: Memory,
        present: Sequence[Environment] = (),
    ) -> tuple[list[Environment], list[Attempt]]:
        """An environment for as many slots as possible, and every attempt made.

        Works in rounds: all slots that lack an environment make one attempt each. What a round
        accepts is settled in the order of slots, so the result does not depend on timing. When
        ``designer.deadline`` seconds have passed no new round begins and unfinished attempts are
        given up; what was accepted stays. Several processes deal out the slots, and exchange what
        each round has made.

        Args:
          documents: one for each slot of this process and each attempt, slot-major.
          memory: what to show, and what a new environment must not repeat.
          present: the rest of the set, which it must not repeat either.
        """
        settings = self._settings.designer
        deadline = time.monotonic() + settings.deadline
        accepted: dict[int, Environment] = {}
        attempts: list[Attempt] = []
        mine = dealt(slots, self._exchange)
        for number in range(settings.attempts):
            if len(accepted) == len(slots):
                break
            own = []
            for position, slot in enumerate(mine):
                if slot.index not in accepted:
                    document = documents[position * settings.attempts + number]
                    own.append(self._prepare(slot, number, iteration, document, memory))
            await self._make(own, iteration, memory, deadline)
            if self._settings.review.enabled:
                await self._review(own, iteration, deadline)
            batch, over = await self._of_all(own, time.monotonic() >= deadline)
            attempts += batch
            for item in batch:
                others = [*present, *accepted.values()]
                if environment := self._settle(item, iteration, others, memory):
                    accepted[item.slot.index] = environment
            if over:
                break
        return [accepted[index] for index in sorted(accepted)], attempts

    async def _make(
        self, attempts: Sequence[Attempt], iteration: int, memory: Memory, deadline: float
    ) -> None:
        """Makes the attempts; those that are late are given up."""
        tasks = [asyncio.create_task(self._attempt(item, iteration, memory)) for item in attempts]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=max(0.0, deadline - time.monotonic()))
        for task in late:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _review(self, attempts: Sequence[Attempt], iteration: int, deadline: float) -> None:
        """The policy's own verdict on what the checks have accepted, in one batch."""
        accepted = [item for item in attempts if item.outcome == "accepted"]
        programs = [
            Program(
                item.source, item.slot.skill, f"{iteration}/review/{item.slot.index}/{item.number}"
            )
            for item in accepted
        ]
        verdicts = review(programs, self._sampler, self._renderer, self._settings)
        try:
            reviews = await asyncio.wait_for(verdicts, max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            reviews = [Review("unfinished", "not reviewed in time")] * len(accepted)
        for item, verdict in zip(accepted, reviews, strict=True):
            item.outcome, item.reason = verdict.outcome, verdict.reason

    async def _of_all(self, own: Sequence[Attempt], over: bool) -> tuple[list[Attempt], bool]:
        """A round's attempts in the order of slots, and whether time is over for any process."""
        told = {"attempts": [dataclasses.asdict(item) for item in own], "over": over}
        shares = await self._exchange.all_gather("the attempts of the designer", told)
        rows = [row for share in shares for row in share["attempts"]]
        batch = sorted(map(Attempt.from_json, rows), key=lambda item: item.slot.index)
        return batch, any(share["over"] for share in shares)

    def _prepare(
        self,
        slot: Slot,
        number: int,
        iteration: int,
        document: Document | None,
        memory: Memory,
    ) -> Attempt:
        seed = schedule.derive_seed(self._settings.seed, "memory", iteration, slot.index, number)
        rng = random.Random(seed)
        exemplars = memory.exemplars(slot.skill, rng)
        avoid = memory.avoid(slot.skill, rng)
        ideas = self._prompts.ideas(slot.skill, rng)
        prompt = self._fit(slot.skill, document, exemplars, avoid, ideas)
        return Attempt(slot, number, document, exemplars, prompt)

    def _fit(
        self,
        skill: str,
        document: Document | None,
        exemplars: list[Record],
        avoid: list[Record],
        ideas: Sequence[str],
    ) -> list[int]:
        """Prompt ids that leave ``max_tokens`` of the context: the document gives way first."""
        settings = self._settings
        budget = settings.sampler.context - settings.designer.max_tokens
        words = settings.corpus.max_tokens
        body = self._renderer.text(document.text) if document else []
        while True:
            excerpt = None
            if document is not None:
                text = self._renderer.decode(body[:words])
                excerpt = dataclasses.replace(document, text=text)
            messages = self._prompts.designer(
                settings.designer.prompts,
                skill=skill,
                difficulty=settings.designer.difficulty,
                document=excerpt,
                exemplars=exemplars,
                avoid=avoid,
                max_turns=settings.agent.max_turns,
                ideas=ideas,
                hint_words=settings.hints.words if settings.hints.author == "environment" else 0,
            )
            tokens = self._renderer.prompt(messages)
            tokens = tokens + self._renderer.text(settings.designer.prefill)
            excess = len(tokens) - budget
            if excess <= 0:
                return tokens
            if document is not None and min(words, len(body)) > 0:
                words = max(0, min(words, len(body)) - excess)
            elif exemplars:
                exemplars.pop()
            else:
                raise config.ConfigError(
                    f"config.sampler.context: {settings.sampler.context} cannot hold the prompt "
                    f"of the designer and designer.max_tokens = {settings.designer.max_tokens}; "
                    f"raise it by {excess} or lower designer.max_tokens"
                )

    async def _attempt(self, attempt: Attempt, iteration: int, memory: Memory) -> None:
        """Samples, parses and validates, noting the outcome in ``attempt``."""
        settings = self._settings.designer
        params = sampling_params(settings, self._renderer)
        uid = f"{iteration}/slot/{attempt.slot.index}/{attempt.number}"
        async with self._sampler.party():
            (completion,) = await self._sampler.generate([Request(attempt.prompt, params, uid)])
        if completion.finish_reason == "refused":
            attempt.outcome, attempt.reason = "refused", completion.refusal
            return
        attempt.sample = _sample(attempt.prompt, completion)
        attempt.reply = settings.prefill + self._renderer.decode(completion.tokens)
        if completion.finish_reason == "length":
            attempt.outcome, attempt.reason = "length", "ran out of designer.max_tokens"
            return
        try:
            attempt.source = parsing.parse_source(attempt.reply)
        except parsing.ParseFailure as failure:
            attempt.outcome, attempt.reason = failure.kind, failure.reason
            return
        try:
            attempt.report = await validation.validate(
                self._host,
                attempt.source,
                self._settings.validation,
                [record.snippet for record in memory.records],
                self._settings.agent.max_turns,
                self._settings.setting,
            )
        except HostFault as fault:
            attempt.outcome, attempt.reason = "host_fault", str(fault)
            return
        attempt.outcome, attempt.reason = _verdict(attempt.report)

    def _settle(
        self, attempt: Attempt, iteration: int, others: Sequence[Environment], memory: Memory
    ) -> Environment | None:
        """The environment of an accepted attempt, unless an earlier one is nearly the same."""
        if attempt.outcome != "accepted" or attempt.sample is None:
            return None
        sha = _sha(attempt.source)
        known = {record.environment for record in memory.records} | {item.sha for item in others}
        if sha in known:
            attempt.outcome, attempt.reason = "duplicate", "this very program is known"
            return None
        if validation.modes(self._settings.validation)["novel"] == "required":
            likeness = max(
                (validation.similarity(attempt.source, other.source) for other in others),
                default=0.0,
            )
            if likeness >= self._settings.validation.similarity:
                attempt.outcome = "duplicate"
                attempt.reason = f"similarity {likeness:.2f} to another environment of the set"
                return None
        return Environment(
            sha=sha,
            name=f"{iteration:05d}_{attempt.slot.index:03d}_{schedule.slug(attempt.slot.skill)}",
            skill=attempt.slot.skill,
            slot=attempt.slot.index,
            written=iteration,
            source=attempt.source,
            document=attempt.document.id if attempt.document else "",
            exemplars=[record.environment for record in attempt.exemplars],
            sample=attempt.sample,
        )


def solutions(attempts: Sequence[Attempt]) -> dict[str, list[list[str]]]:
    """SHA → solutions that validation saw winning, of the accepted attempts that showed any."""
    return {
        _sha(attempt.source): attempt.report["solvable"].measurements["solutions"]
        for attempt in attempts
        if attempt.outcome == "accepted"
        and attempt.report is not None
        and attempt.report["solvable"].status == "passed"
    }


def invalid(attempts: Sequence[Attempt], iteration: int) -> list[Invalid]:
    """What was written to its end and refused for what it is, not for a fault of ours."""
    excused = ("accepted", "host_fault", "unfinished", "unreviewed")
    return [
        Invalid(attempt.slot.skill, iteration, attempt.sample)
        for attempt in attempts
        if attempt.sample is not None and attempt.outcome not in excused
    ]


def _sha(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _verdict(report: validation.Report) -> tuple[str, str]:
    """'accepted', or what refused it: the first required check that did not pass, and its reason.

    An environment without a solution is 'unproven': nobody knows whether it can be won.
    """
    refused = report.refused
    if refused is None:
        return "accepted", ""
    return "unproven" if refused.status == "unproven" else refused.name, refused.reason


def _sample(prompt: list[int], completion: Completion) -> Sample:
    fixed = len(prompt)
    return Sample(
        tokens=[*prompt, *completion.tokens],
        trained=[False] * fixed + [True] * len(completion.tokens),
        logp=[0.0] * fixed + list(completion.logp),
        versions=[-1] * fixed + completion.token_versions,
        experts=completion.experts,
    )

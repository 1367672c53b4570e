"""The checks of a tool environment, beside those it shares with games.

Each is a coroutine over one :class:`ToolTrial`, as in :mod:`spade_jax.environments.checks`.
"""

import dataclasses
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spade_jax.environments import checks, tools
from spade_jax.environments.calls import Call
from spade_jax.environments.checks import Failed, Measurements, Trial, Unproven
from spade_jax.environments.tool_players import odd_calls, random_call
from spade_jax.environments.tools import Answer, Examination, Toolbox

WORD = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
BATCH = 6  # random calls drawn from the same text
NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)


@dataclasses.dataclass
class ToolTrial(Trial):
    """A tool environment under validation."""

    replays: dict[int, "Replay"] = dataclasses.field(default_factory=dict)

    async def toolbox(self) -> Toolbox:
        return Toolbox(await self.host.tools(await self.instance()))

    async def begin(self, seed: int) -> tuple[str, Examination]:
        """Resets; the first instruction and what can be examined before the first call."""
        handle = await self.instance()
        instruction = await self.host.reset(handle, seed)
        return instruction, tools.examination(await self.host.examine(handle))

    async def examine(self) -> Examination:
        return tools.examination(await self.host.examine(await self.instance()))

    async def make(self, calls: Sequence[Call]) -> list[Answer]:
        """All of the calls, one after the other."""
        handle = await self.instance()
        made: list[Answer] = []
        while len(made) < len(calls):
            left = [(call.name, call.arguments) for call in calls[len(made) :]]
            made += tools.answers(await self.host.calls(handle, left))
        return made

    async def finish(self) -> float:
        """The reward of saying that everything has been done; 0 if that ends nothing."""
        result = await self.host.step(await self.instance(), tools.DONE)
        return result.reward if result.terminated else 0.0

    async def solved(self, seed: int) -> tuple[tuple[Call, ...], ...]:
        """The reference calls of each stage; Unproven where there are none."""
        _, start = await self.begin(seed)
        if start.solution is None:
            raise Unproven("the environment defines no solution()")
        return start.solution

    async def replay(self, seed: int) -> "Replay":
        """The reference calls, made one after the other; done once a seed."""
        if seed not in self.replays:
            stages = await self.solved(seed)
            _, start = await self.begin(seed)
            steps = []
            for stage, calls in enumerate(stages):
                for call in calls:
                    (answer,) = await self.make([call])
                    steps.append(Step(stage, call, answer, await self.examine()))
            self.replays[seed] = Replay(start, steps, await self.finish())
        return self.replays[seed]


@dataclasses.dataclass(frozen=True)
class Step:
    """One reference call, the stage it is meant for, its answer, and what it led to."""

    stage: int
    call: Call
    answer: Answer
    after: Examination


@dataclasses.dataclass(frozen=True)
class Replay:
    """A solution, played."""

    start: Examination
    steps: list[Step]
    reward: float


async def schemas(trial: ToolTrial) -> Measurements:
    """Every tool's schema is a valid JSON Schema and agrees with its method."""
    _, start = await trial.begin(0)
    toolbox = await trial.toolbox()
    if not toolbox.schemas:
        raise Failed("it has no tool: define methods whose names begin with tool_")
    for name, schema in toolbox.schemas.items():
        problem = tools.schema_problem(schema) or tools.disagreement(schema, start.signatures[name])
        if problem:
            raise Failed(f"tool {name}: {problem}")
    return {"tools": len(toolbox.schemas)}


async def criteria_evaluate(trial: ToolTrial) -> Measurements:
    """Every criterion gives an answer on the state after a reset."""
    for seed in trial.seeds:
        _, start = await trial.begin(seed)
        if errors := [f"{n}: {item}" for n, item in _named(start) if isinstance(item, str)]:
            raise Failed(f"on seed {seed} {'; '.join(errors)}")
    return {}


async def unmet_at_reset(trial: ToolTrial) -> Measurements:
    """No criterion is true before anything has been done, on any seed."""
    met: dict[str, int] = {}
    for seed in trial.seeds:
        _, start = await trial.begin(seed)
        for name, value in _named(start):
            if value is True:
                met.setdefault(name, seed)
    if met:
        raise Failed("true at reset: " + "; ".join(f"{n}, on seed {s}" for n, s in met.items()))
    return {"stages": len(start.criteria)}


async def solvable(trial: ToolTrial) -> Measurements:
    """The reference calls, replayed, meet each criterion at its own stage, and win."""
    lengths, solutions = [], []
    for seed in trial.seeds:
        replay = await trial.replay(seed)
        calls = [step.call for step in replay.steps]
        if len(calls) > trial.max_turns - 1:
            raise Failed(
                f"the solution of seed {seed} has {len(calls)} calls; a run has {trial.max_turns} "
                "turns, and the last is for saying that all is done"
            )
        _check_stages(replay, seed)
        if replay.reward < checks.SOLVED:
            raise Failed(f"the solution of seed {seed} ends with reward {replay.reward:g}")
        lengths.append(len(calls))
        solutions.append([_plain(call) for call in calls])
    return {"shortest": min(lengths), "longest": max(lengths), "solutions": solutions}


def _check_stages(replay: Replay, seed: int) -> None:
    """Failed unless stage n is reached by the calls of stage n, and no criterion holds sooner."""
    names = [name for name, _ in _named(replay.start)]
    for stage, name in enumerate(names):
        own = [step for step in replay.steps if step.stage == stage]
        if not own or own[-1].after.reached <= stage:
            tail = f" The last call answered {own[-1].answer.output:.100}" if own else ""
            raise Failed(f"on seed {seed} the solution does not meet {name}.{tail}")
        early = [step for step in replay.steps if step.stage < stage]
        if any(step.after.criteria[stage] is not False for step in early):
            raise Failed(f"on seed {seed} {name} holds before its turn")


async def derivable(trial: ToolTrial) -> Measurements:
    """Each argument of the reference calls can be read in an instruction or an earlier output.

    Every word and number of it must have been shown. Values that the schema lists are known.
    """
    toolbox = await trial.toolbox()
    missing: dict[str, None] = {}
    arguments = 0
    for seed in trial.seeds:
        replay = await trial.replay(seed)
        known = _words(replay.start.instructions[0])
        for step in replay.steps:
            listed = _words(str(toolbox.schemas.get(step.call.name, {})))
            for key, value in _leaves(step.call.arguments):
                arguments += 1
                if not _words(value) <= known | listed:
                    missing[f"{step.call.name}({key}={value!r:.60})"] = None
            known |= _words(step.answer.output)
            known |= _words("\n".join(step.answer.instructions))
    if missing:
        raise Failed("nobody could know " + ", ".join(list(missing)[:8]))
    return {"arguments": arguments}


async def survives_garbage(trial: ToolTrial) -> Measurements:
    """No message makes it fail, and no call that the schemas let through, however odd."""
    toolbox = await trial.toolbox()
    odd = odd_calls(toolbox)
    for seed in trial.seeds:
        await trial.play(seed, checks.GARBAGE)
        await trial.make(odd)
    return {"calls": len(odd)}


async def deterministic(trial: ToolTrial) -> Measurements:
    """A second process that plays the seeds in another order sees the same."""
    toolbox = await trial.toolbox()
    plans = {}
    for seed in trial.seeds:
        instruction, start = await trial.begin(seed)
        source = random.Random(seed)
        reference = [call for calls in start.solution or () for call in calls]
        plans[seed] = [
            *reference,
            *(random_call(toolbox, instruction, source) for _ in range(trial.max_turns)),
        ]
    first = {seed: await _record(trial, seed, plan) for seed, plan in plans.items()}
    await trial.close()
    for seed in reversed(trial.seeds):
        if await _record(trial, seed, plans[seed]) != first[seed]:
            raise Failed(f"two plays of seed {seed} with the same calls differ")
    return {"seeds": len(plans)}


async def _record(trial: ToolTrial, seed: int, plan: Sequence[Call]) -> Any:
    start = await trial.begin(seed)
    answers = await trial.make(plan)
    return start, answers, await trial.examine(), await trial.finish()


async def not_trivial(trial: ToolTrial) -> Measurements:
    """Doing nothing, random valid calls, and one stage's calls over and over do not win."""
    limit = trial.settings.random_win_rate
    measured: Measurements = {"nothing": await _nothing(trial), "random": await _random(trial)}
    solution = (await trial.begin(0))[1].solution
    for stage in range(len(solution or ())):
        rate = await _repeated(trial, stage)
        measured["repeated"] = max(rate, measured.get("repeated", 0.0))
    for name, rate in measured.items():
        if rate > limit:
            raise Failed(f"play by '{name}' has a mean return of {rate:.2f}, above {limit}")
    return measured


async def _nothing(trial: ToolTrial) -> float:
    total = 0.0
    for seed in trial.seeds:
        await trial.begin(seed)
        total += await trial.finish()
    return total / len(trial.seeds)


async def _random(trial: ToolTrial) -> float:
    toolbox = await trial.toolbox()
    total = 0.0
    handle = await trial.instance()
    for seed in range(trial.settings.random_episodes):
        source = random.Random(seed)
        shown = await trial.host.reset(handle, seed)
        for start in range(0, trial.max_turns - 1, BATCH):
            count = min(BATCH, trial.max_turns - 1 - start)
            calls = [random_call(toolbox, shown, source) for _ in range(count)]
            for answer in await trial.make(calls):
                shown = "\n".join([shown, answer.output, *answer.instructions])
        total += await trial.finish()
    return total / trial.settings.random_episodes


async def _repeated(trial: ToolTrial, stage: int) -> float:
    total = 0.0
    for seed in trial.seeds:
        calls = (await trial.solved(seed))[stage]
        await trial.begin(seed)
        rounds = (trial.max_turns - 1) // max(1, len(calls))
        await trial.make([*calls] * rounds)
        total += await trial.finish()
    return total / len(trial.seeds)


def _named(examination: Examination) -> Iterator[tuple[str, bool | str]]:
    """Each criterion, called by its number and its instruction, and its value."""
    pairs = zip(examination.instructions, examination.criteria, strict=True)
    for number, (instruction, value) in enumerate(pairs, 1):
        yield f"criterion {number} ({instruction:.60})", value


def _plain(call: Call) -> str:
    """A call as words, for finding it in a hint."""
    return " ".join([call.name, *(f"{key} {value}" for key, value in _leaves(call.arguments))])


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Texts and numbers in an argument, each with its parameter; what is neither is known."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, key or name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield key, value


def _words(value: Any) -> set[str]:
    """Words and numbers of a text, in one form each: 3 for 3.0 and for three."""
    text = THOUSANDS.sub("", str(value)).casefold()
    return {_form(word) for word in WORD.findall(text)}


def _form(word: str) -> str:
    if word in NUMBER_WORDS:
        return str(NUMBER_WORDS.index(word))
    return f"{float(word):g}" if word[0].isdecimal() and len(word) < 16 else word


ALL = (
    checks.parses,
    checks.one_environment,
    checks.constructs,
    checks.resets,
    schemas,
    criteria_evaluate,
    unmet_at_reset,
    solvable,
    derivable,
    survives_garbage,
    deterministic,
    not_trivial,
    checks.novel,
)

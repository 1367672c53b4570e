"""The single checks of an environment, each a coroutine over one :class:`Trial`.

A check returns its measurements when it passes; it raises :class:`Failed` or
:class:`Unproven`, or lets an ``EnvironmentFault`` through, which fails it too.
"""

import ast
import contextlib
import dataclasses
import random
import re
from collections.abc import Sequence
from typing import Any

from spade_jax import config
from spade_jax.environments import players
from spade_jax.environments.parsing import boxed, syntax_error
from spade_jax.environments.similarity import similarity
from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.interface import Host, StepResult

NOT_ENVIRONMENTS = ("Env", "ToolEnv", "ToolUseBaseEnv")
TURN_MARGIN = 2  # turns beyond max_turns in which an episode may still end
SOLVED = 1 - 1e-6
PROBES = ("1", "test", "42", "yes")
CONSTANTS = 6
GARBAGE = (
    "",
    " ",
    "\n\n",
    "\\boxed{}",
    "\\boxed{ }",
    "\\boxed{",
    "\\boxed{-1}",
    "\\boxed{999999999999999999999}",
    "\\boxed{1.5e400}",
    "\\boxed{nan}",
    "\\boxed{None}",
    "\\boxed{[[1, 2], 3]}",
    "\\boxed{a, b; c | d}",
    "\\boxed{{x}}",
    "\\boxed{'\"\\\\}",
    "\\boxed{²٣½}",
    "\\boxed{" + "9" * 5000 + "}",
    "日本語 \U0001f600 \x00\x1b",
    "word " * 500,
)
REVEALS = r"(?:answer|solution|secret|code|password|target|hidden \w+)\W+(?:is|was|are|equals)?\W*"

Measurements = dict[str, Any]


class Failed(Exception):
    """The environment does not have the property; the message says what was seen."""


class Unproven(Exception):
    """The environment offers no way to tell."""


@dataclasses.dataclass
class Trial:
    """An environment under validation and what the checks so far have learnt of it."""

    host: Host
    source: str
    settings: config.Validation
    max_turns: int
    others: Sequence[str]
    handle: int | None = None
    observations: list[str] = dataclasses.field(default_factory=list)

    @property
    def seeds(self) -> range:
        """The seeds on which it is reset and replayed."""
        return range(self.settings.seeds)

    @property
    def turns(self) -> int:
        """Turns after which an episode must have ended."""
        return self.max_turns + TURN_MARGIN

    async def instance(self) -> int:
        """A living instance, shared by the checks."""
        if self.handle is None:
            self.handle = await self.open()
        return self.handle

    async def open(self) -> int:
        """Another instance; the caller closes it."""
        return await self.host.open(self.source, self.max_turns)

    async def play(self, seed: int, actions: Sequence[str]) -> tuple[str, list[StepResult]]:
        """One episode on the shared instance."""
        return await self.host.play(await self.instance(), seed, actions)

    async def solution(self, seed: int) -> list[str]:
        """Boxed actions of the environment's own solution; Unproven where it has none."""
        handle = await self.instance()
        await self.host.reset(handle, seed)
        try:
            actions = await self.host.solution(handle)
        except EnvironmentFault as fault:
            if fault.kind == "missing":
                raise Unproven(fault.reason) from fault
            raise
        return [action if "\\boxed" in action else boxed(action) for action in actions]

    async def close(self) -> None:
        """Closes the shared instance; the next use opens another."""
        if self.handle is not None:
            handle, self.handle = self.handle, None
            await self.host.close(handle)


async def parses(trial: Trial) -> Measurements:
    """The source is Python."""
    error = syntax_error(trial.source)
    if error:
        raise Failed(error)
    return {"characters": len(trial.source), "lines": trial.source.count("\n") + 1}


async def one_environment(trial: Trial) -> Measurements:
    """Exactly one class of the module has a name that ends in Env."""
    names = [
        node.name
        for node in ast.parse(trial.source).body
        if isinstance(node, ast.ClassDef)
        and node.name.endswith("Env")
        and node.name not in NOT_ENVIRONMENTS
    ]
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        raise Failed(f"one class whose name ends in Env must be defined, found {listed}")
    return {"name": names[0]}


async def constructs(trial: Trial) -> Measurements:
    """The module runs and the class can be made without arguments."""
    await trial.instance()
    return {}


async def resets(trial: Trial) -> Measurements:
    """reset(seed) gives an observation that is not blank, on every seed."""
    handle = await trial.instance()
    trial.observations = [await trial.host.reset(handle, seed) for seed in trial.seeds]
    if not all(observation.strip() for observation in trial.observations):
        raise Failed("reset() returned a blank observation")
    return {
        "characters": max(map(len, trial.observations)),
        "distinct": len(set(trial.observations)),
    }


async def types_and_ranges(trial: Trial) -> Measurements:
    """What step() returns has the right types and range; the host refuses all else."""
    results = []
    for seed in trial.seeds:
        results += (await trial.play(seed, [boxed(probe) for probe in PROBES]))[1]
    rewards = [result.reward for result in results]
    return {"lowest_reward": min(rewards), "highest_reward": max(rewards)}


async def survives_garbage(trial: Trial) -> Measurements:
    """No message makes step() raise or hang."""
    for action in GARBAGE:
        try:
            await trial.play(0, [action])
        except EnvironmentFault as fault:
            raise EnvironmentFault(fault.kind, f"on {action[:40]!r}: {fault.reason}") from fault
    await trial.play(0, GARBAGE)
    return {"messages": len(GARBAGE)}


async def deterministic(trial: Trial) -> Measurements:
    """A second process that plays the seeds in another order sees the same."""
    plans = {}
    for seed in trial.seeds:
        source = random.Random(seed)
        shown = trial.observations[seed]
        plans[seed] = [players.random_action(shown, source) for _ in range(trial.turns)]
        with contextlib.suppress(Unproven):
            plans[seed] = [plans[seed][0], *await trial.solution(seed), *plans[seed]][: trial.turns]
    first = {seed: await _record(trial.host, await trial.instance(), seed, plan)
             for seed, plan in plans.items()}  # fmt: skip
    other = await trial.open()
    try:
        for seed in reversed(trial.seeds):
            if await _record(trial.host, other, seed, plans[seed]) != first[seed]:
                raise Failed(f"two plays of seed {seed} with the same actions differ")
    finally:
        await trial.host.close(other)
    return {"seeds": len(plans)}


async def _record(host: Host, handle: int, seed: int, plan: Sequence[str]) -> Any:
    played = await host.play(handle, seed, plan)
    await host.reset(handle, seed)
    try:
        return played, await host.solution(handle)
    except EnvironmentFault as fault:
        if fault.kind != "missing":
            raise
        return played, None


async def responds(trial: Trial) -> Measurements:
    """Different actions can lead to different answers, echoes of the action aside."""
    for seed in trial.seeds:
        source = random.Random(seed)
        shown = trial.observations[seed]
        plans = [[boxed(probe)] * 3 for probe in PROBES]
        plans += [[players.random_action(shown, source)] * 3 for _ in range(12)]
        with contextlib.suppress(Unproven):
            plans.append(await trial.solution(seed))
        seen = set()
        for plan in plans:
            results = (await trial.play(seed, plan))[1]
            seen.add(tuple(_without_echo(*pair) for pair in zip(plan, results, strict=False)))
            shortest = min(map(len, seen))
            if len({outcome[:shortest] for outcome in seen}) > 1:
                return {"seed": seed}
    raise Failed("every action tried led to the same answer")


def _without_echo(action: str, result: StepResult) -> tuple[str, float, bool, bool]:
    text = result.observation.replace(action, "")
    inside = _inside(action)
    if inside:
        text = re.sub(rf"(?<!\w){re.escape(inside)}(?!\w)", "", text)
    return text, result.reward, result.terminated, result.truncated


async def terminates(trial: Trial) -> Measurements:
    """Some play ends within the run's turns, by the environment's own word."""
    lengths = []
    for seed in trial.seeds:
        source = random.Random(seed)
        shown = trial.observations[seed]
        plans = [[players.random_action(shown, source) for _ in range(trial.turns)]]
        plans.append([boxed("1")] * trial.turns)
        with contextlib.suppress(Unproven):
            plans.append((await trial.solution(seed))[: trial.turns])
        for plan in plans:
            results = (await trial.play(seed, plan))[1]
            if results and (results[-1].terminated or results[-1].truncated):
                lengths.append(len(results))
    if not lengths:
        raise Failed(f"no play ended within {trial.turns} turns")
    return {"shortest": min(lengths), "longest": max(lengths)}


async def not_trivial(trial: Trial) -> Measurements:
    """Mean return of random play, of the best constant play and of one fixed solution is low."""
    limit = trial.settings.random_win_rate
    measured: Measurements = {"random": await _random_return(trial)}
    for action in players.constant_actions(trial.observations, CONSTANTS):
        rate = await _fixed_return(trial, [action] * trial.turns)
        if rate >= measured.get("constant", 0.0):
            measured |= {"constant": rate, "constant_action": action}
    with contextlib.suppress(Unproven):
        measured["fixed_solution"] = await _fixed_return(trial, await trial.solution(0))
    for name in ("random", "constant", "fixed_solution"):
        if measured.get(name, 0.0) > limit:
            raise Failed(f"{name} play has a mean return of {measured[name]:.2f}, above {limit}")
    return measured


async def _random_return(trial: Trial) -> float:
    handle = await trial.instance()
    total = 0.0
    for seed in range(trial.settings.random_episodes):
        source = random.Random(seed)
        first = shown = await trial.host.reset(handle, seed)
        for _ in range(trial.max_turns):
            action = players.random_action(shown, source)
            result = await trial.host.step(handle, action)
            shown = f"{first}\n{result.observation}"
            if result.terminated or result.truncated:
                total += max(result.reward, 0.0) if result.terminated else 0.0
                break
    return total / trial.settings.random_episodes


async def _fixed_return(trial: Trial, plan: Sequence[str]) -> float:
    """Mean return of the same actions on every seed but 0, which a solution is taken from.

    Stops once the rest of the episodes cannot change on which side of the limit the mean lies.
    """
    episodes = trial.settings.random_episodes
    allowed = trial.settings.random_win_rate * episodes
    total = 0.0
    for played, seed in enumerate(range(1, episodes + 1)):
        if total > allowed or total + episodes - played <= allowed:
            break
        results = (await trial.play(seed, plan[: trial.max_turns]))[1]
        if results and results[-1].terminated:
            total += max(results[-1].reward, 0.0)
    return total / episodes


async def solvable(trial: Trial) -> Measurements:
    """The environment's own solution, replayed, wins on every seed.

    The solutions are measured too: what gives one away can be found in a hint.
    """
    lengths, solutions = [], []
    for seed in trial.seeds:
        actions = await trial.solution(seed)
        if not 0 < len(actions) <= trial.max_turns:
            raise Failed(
                f"the solution of seed {seed} has {len(actions)} actions; a run has "
                f"{trial.max_turns} turns"
            )
        results = (await trial.play(seed, actions))[1]
        last = results[-1]
        if not (last.terminated and last.reward >= SOLVED):
            raise Failed(
                f"the solution of seed {seed} ends with reward {last.reward:g}, "
                f"terminated={last.terminated}: {last.observation[:100]!r}"
            )
        lengths.append(len(results))
        solutions.append([_inside(action) for action in actions])
    return {"shortest": min(lengths), "longest": max(lengths), "solutions": solutions}


async def hides_solution(trial: Trial) -> Measurements:
    """The first observation does not print the solution.

    A solution of several actions counts as printed when they stand one after the other; any, when
    its first action follows a word that announces it ("the answer is ..."). A single action may
    otherwise appear, as one option among others must.
    """
    for seed in trial.seeds:
        actions = [_inside(action) for action in await trial.solution(seed)]
        if not any(actions):
            continue
        shown = trial.observations[seed]
        announced = REVEALS + re.escape(actions[0].lower()) + r"(?!\w)"
        if (len(actions) > 1 and lists(shown, actions)) or re.search(announced, shown.lower()):
            raise Failed(f"the first observation of seed {seed} prints the solution")
    return {}


def lists(text: str, actions: Sequence[str]) -> bool:
    """Whether the actions stand in the text, one after the other, as whole words."""
    tokens = [re.escape(token) for action in actions for token in action.lower().split()]
    pattern = r"(?<!\w)" + r"[\W_]+(?:then )?".join(tokens) + r"(?!\w)"
    return bool(tokens) and re.search(pattern, text.lower()) is not None


def gives_away(text: str, solutions: Sequence[Sequence[str]]) -> bool:
    """Whether a hint contains a solution verbatim.

    Solutions of one action are the exception where they differ by seed and the hint names all of
    them: it then names the options and gives none away.
    """
    different = {tuple(actions) for actions in solutions}
    told = {actions for actions in different if lists(text, actions)}
    options = len(different) > 1 and told == different and all(len(item) == 1 for item in told)
    return bool(told) and not options


def _inside(action: str) -> str:
    """The content of a boxed action."""
    return action.removeprefix("\\boxed{").removesuffix("}").strip()


async def novel(trial: Trial) -> Measurements:
    """No near-duplicate of the other sources given; those may be only the beginnings of some."""
    closest = max(
        (similarity(trial.source[: len(other)], other) for other in trial.others), default=0.0
    )
    if closest >= trial.settings.similarity:
        raise Failed(f"similarity {closest:.2f} to a known environment")
    return {"closest": closest}


ALL = (
    parses,
    one_environment,
    constructs,
    resets,
    types_and_ranges,
    survives_garbage,
    deterministic,
    responds,
    terminates,
    not_trivial,
    solvable,
    hides_solution,
    novel,
)
# Without these nothing that follows can be asked.
FOUNDATIONS = ("parses", "one_environment", "constructs", "resets")

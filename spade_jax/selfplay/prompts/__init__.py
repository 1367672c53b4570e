"""Chat messages for the designer, the agent and the hint writer, in the setting ``games``.

The texts are Jinja2 files in two sets: ``full`` for language models, ``small`` for the models of a
few million parameters that a laptop trains, where every token of scaffolding costs. Messages are
lists of ``{"role", "content"}``; a renderer turns them into tokens.
"""

import ast
import functools
import hashlib
import pathlib
import random
import re
import typing
from collections.abc import Sequence

import jinja2

Messages = list[dict[str, str]]

SKILLS = {
    "Mathematical Reasoning": "solving mathematical problems and equations",
    "Logical Deduction": "drawing conclusions from premises and rules",
    "Spatial Reasoning": "handling spatial relations and turning things over in the mind",
    "Pattern Recognition": "finding the pattern in sequences, numbers or text",
    "Optimization": "finding the best solution under constraints",
    "Causal Inference": "telling what causes what, and with which effect",
}

IDEAS = {
    "Mathematical Reasoning": (
        "a balance whose two sides are equations with coefficients to be adjusted",
        "a maze of rooms that each apply an operation to the number carried through them",
        "an auction whose lots have hidden values that bids help to estimate",
        "a tower of weights where each block shifts the centre of mass",
    ),
    "Logical Deduction": (
        "questioning suspects, some of whom always lie",
        "searching rooms for evidence and ruling out culprits",
        "filling a grid of constraints by asking about one cell at a time",
        "escaping from rooms whose locks state conditions on one another",
    ),
    "Spatial Reasoning": (
        "finding the way out of a maze of which only the neighbouring cells are described",
        "pushing boxes onto marks without trapping one in a corner",
        "fitting furniture into a room by moving and turning it",
        "steering a robot with little fuel over terrain of different cost",
    ),
    "Pattern Recognition": (
        "collecting fragments of a message until the cipher can be seen",
        "breaking a code from the feedback on each attempt",
        "a small minefield whose counts show where not to step",
        "a map whose signs follow a rule that changes by region",
    ),
    "Optimization": (
        "packing a bag while objects arrive one by one",
        "scheduling jobs on machines that can break down",
        "keeping a portfolio while the market turns",
        "setting up a factory whose stages limit one another",
    ),
    "Causal Inference": (
        "controlled experiments on a substance of several ingredients",
        "finding which part of a machine makes it fail",
        "choosing measures against an epidemic and reading their delayed effect",
        "debugging a circuit by opening and closing its switches",
    ),
}


class Document(typing.Protocol):
    """What the designer needs of a corpus document."""

    @property
    def title(self) -> str: ...
    @property
    def text(self) -> str: ...


class Record(typing.Protocol):
    """What the designer needs of an environment in memory."""

    @property
    def environment(self) -> str: ...
    @property
    def skill(self) -> str: ...
    @property
    def snippet(self) -> str: ...
    @property
    def win_rate(self) -> float: ...
    @property
    def regret(self) -> float | None: ...


def ideas(skill: str, rng: random.Random) -> tuple[str, ...]:
    """What a prompt without a document offers to start from: three of the skill's concepts."""
    return tuple(rng.sample(IDEAS[skill], 3))


def designer(
    set_: str,
    *,
    skill: str,
    difficulty: str,
    document: Document | None,
    exemplars: Sequence[Record],
    avoid: Sequence[Record],
    max_turns: int,
    ideas: Sequence[str] = (),
    hint_words: int = 0,
) -> Messages:
    """Asks for one environment.

    Args:
      set_: ``full`` or ``small``.
      skill: a key of :data:`SKILLS`.
      difficulty: easy, medium or hard.
      document: what to ground the environment in, already cut to its budget; None = from ideas.
      exemplars: well-calibrated environments to show.
      avoid: environments to name as too easy or too hard.
      max_turns: turns the environment should allow.
      ideas: concepts offered when there is no document; empty = the skill's first three.
      hint_words: words of the hint that the program is to carry; 0 = none (full set only).
    """
    values = {
        "skill": skill,
        "skill_description": SKILLS[skill],
        "difficulty": difficulty,
        "minimum_steps": 2 if difficulty == "easy" else 3,
        "grounded": document is not None,
        "document": document,
        "exemplars": exemplars,
        "avoid": avoid,
        "max_turns": max_turns,
        "ideas": ideas or IDEAS[skill][:3],
        "hint_words": hint_words,
    }
    if set_ == "small":
        return [message("user", "small/designer", values)]
    values["example"] = render("full/example.py", {})
    return [
        message("system", "full/designer_system", {}),
        message("user", "full/designer", values),
    ]


def agent(set_: str, *, observation: str, hint: str | None = None) -> Messages:
    """Opens an episode with the first observation; later ones are plain user messages.

    The hinted arm differs in one thing: the observation ends in a blank line and the hint.
    """
    if hint is not None:
        observation = f"{observation}\n\nHINT: {hint}"
    return [message("user", f"{set_}/agent", {"observation": observation})]


def hint(set_: str, *, skill: str, source: str, words: int) -> Messages:
    """Asks for a hint of fewer than ``words`` words on ``source``, shown without its solution."""
    values = {"skill": skill, "source": without_solution(source), "words": words}
    user = message("user", f"{set_}/hint", values)
    if set_ == "small":
        return [user]
    return [message("system", "full/hint_system", {}), user]


def without_solution(source: str) -> str:
    """``source`` with every method named ``solution`` cut out; all other text stays as it is.

    Raises:
      SyntaxError: ``source`` does not parse.
    """
    lines = re.split(r"(?<=\n)", source)  # as ast counts them: form feeds end no line
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "solution":
            first = min(part.lineno for part in (node, *node.decorator_list)) - 1
            lines[first : node.end_lineno] = [""] * (typing.cast(int, node.end_lineno) - first)
    return "".join(lines).strip("\n") + "\n"


def digest(set_: str) -> str:
    """SHA-256 of a set's texts: names the version of the prompts in records and caches."""
    files = sorted((_FOLDER / set_).glob("*.j2"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


_FOLDER = pathlib.Path(__file__).parent


def message(role: str, template: str, values: dict[str, typing.Any]) -> dict[str, str]:
    """A chat message; ``template`` is the path of a text in this folder, without ``.j2``."""
    return {"role": role, "content": render(template, values)}


def render(template: str, values: dict[str, typing.Any]) -> str:
    """A text of this folder, filled in."""
    return _templates().get_template(template + ".j2").render(values)


@functools.cache
def _templates() -> jinja2.Environment:
    # Prompts are plain text for a language model, so nothing is escaped as HTML.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER), undefined=jinja2.StrictUndefined, autoescape=False
    )
    environment.filters.update(
        undelimited=_undelimited,
        fenced=_fenced,
        whole_lines=_whole_lines,
        words=opening_words,
        class_name=_class_name,
        verdict=lambda record: "too easy" if record.win_rate > 0.5 else "too hard",
    )
    return environment


def _undelimited(text: str) -> str:
    """Makes the document's own tags harmless, so that it cannot close the block it stands in."""
    return re.sub(r"<(?=\s*/?\s*document\b)", "&lt;", text, flags=re.IGNORECASE)


def _fenced(source: str) -> str:
    """A code fence longer than any run of backticks inside."""
    ticks = "`" * max([3] + [len(run) + 1 for run in re.findall(r"`{3,}", source)])
    return f"{ticks}python\n{source.rstrip()}\n{ticks}"


def _whole_lines(snippet: str) -> str:
    """``snippet`` without the last line that memory has cut in two."""
    return snippet[: snippet.rfind("\n") + 1] or snippet


def opening_words(text: str, count: int) -> str:
    """The first ``count`` words, on one line and without the quotes that delimit the title."""
    return " ".join(re.sub(r"[^A-Za-z0-9]+", " ", text).split()[:count])


def _class_name(record: Record) -> str:
    match = re.search(r"^class (\w+)", record.snippet, re.MULTILINE)
    return match.group(1) if match else record.environment

r"""GPQA-Diamond: 198 questions with four options, two replies to each.

The options of a row come in an order drawn from the row's question, the same in every run; what is
right is known by place, never by looking for its text. No question is part of this package: its
authors ask not to show any, so records of a run should not be published either.
"""

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spade_jax.benchmarks import asked, files
from spade_jax.benchmarks.interface import Absent, Figures, Item, Outcome, Policy
from spade_jax.environments import parsing
from spade_jax.sampling.interface import SamplingParams

LETTERS = "ABCD"
SAMPLES = 2
ROWS = 198
RIGHT, WRONG = "Correct Answer", tuple(f"Incorrect Answer {number}" for number in (1, 2, 3))
PROMPT = """\
{question}

{options}

Think step by step, and put the letter of the right option, alone, into \\boxed{{}}."""
DRESS = re.compile(r"\\(?:text|math|bold|bf|rm|it|sf|tt|operatorname)[a-z]*\b\*?|[{}$\\~]")
SAID = re.compile(
    r"(?i:answer|option|choice)(?:\s+is)?[\s:=(\[\"]{0,6}([A-D])(?![A-Za-z'])", re.ASCII
)


class GPQADiamond:
    """The benchmark.

    Args:
      data: folder with ``gpqa_diamond``: the gated file ``gpqa_diamond.csv``, or its rows.
    """

    name, title = "gpqa_diamond", "GPQA-Diamond"
    params = SamplingParams(max_tokens=16384, temperature=0.7, top_p=0.8, top_k=20)

    def __init__(self, data: Path):
        self._data = data
        self._digest = ""

    async def __aenter__(self) -> "GPQADiamond":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def items(self) -> list[Item]:
        source = "Idavidrein/gpqa", "gpqa_diamond.csv"
        command = files.command_for(self._data, self.name, *source)
        command += " (after agreeing to its terms on the hub)"
        rows = files.read(self._data, self.name, command)
        columns = ("Question", RIGHT, *WRONG)
        if wrong := next((row for row in rows if not all(row.get(name) for name in columns)), None):
            missing = ", ".join(name for name in columns if not wrong.get(name))
            raise Absent(f"{self._data / self.name}: a row without {missing}", command)
        if len(rows) != ROWS:
            raise Absent(f"{self._data / self.name} holds {len(rows)} rows, not {ROWS}", command)
        self._digest = asked.digest(*(row[name].strip() for row in rows for name in columns))
        return [
            Item(f"{number}/{sample}", self.name, question(row), str(number))
            for number, row in enumerate(rows, 1)
            for sample in range(SAMPLES)
        ]

    def protocol(self) -> dict[str, Any]:
        return {
            "data": self._digest,
            "samples": SAMPLES,
            "order": "random.Random(question)",
            "prompt": asked.digest(PROMPT)[:16],
            "extraction": "letter or option in the last box, else the last letter called answer",
        }

    def floors(self) -> Figures:
        return {"guessing": {self.name: 100 / len(LETTERS)}}

    async def attempt(self, item: Item, policy: Policy) -> Outcome:
        options = item.data["options"]
        lines = "\n".join(f"{name}) {text}" for name, text in zip(LETTERS, options, strict=True))
        text = PROMPT.format(question=item.data["question"], options=lines)

        def judge(reply: str) -> tuple[str | None, bool]:
            found = letter(reply, options)
            return found, found == item.data["gold"]

        return await asked.attempt(self.name, item, policy, self.params, text, judge)


def question(row: Mapping[str, str]) -> dict[str, Any]:
    """``question``, ``options`` in the order in which they are shown, and ``gold``, a letter."""
    order = list(range(len(LETTERS)))
    random.Random(row["Question"].strip()).shuffle(order)
    options = [row[name].strip() for name in (RIGHT, *WRONG)]
    return {
        "question": row["Question"].strip(),
        "options": [options[place] for place in order],
        "gold": LETTERS[order.index(0)],
    }


def letter(reply: str, options: Sequence[str] = ()) -> str | None:
    """The option that a reply chooses, outside its thinking; None if it chooses none, or several.

    The last balanced box counts: a letter, alone or before a bracket, a colon or a stop, or the
    only one in it that stands alone as a capital, or an option's whole text. Without a box, or with
    nothing in it that can be read, it is the last capital that is called answer, option or choice.
    """
    said = parsing.without_thinking(reply)
    content = parsing.box_content(said)
    if content is not None and (found := _boxed(content, options)):
        return found
    called = SAID.findall(re.sub(r"[*_`]", "", DRESS.sub(" ", said)))
    return called[-1] if called else None


def _boxed(content: str, options: Sequence[str]) -> str | None:
    bare = DRESS.sub(" ", content).strip()
    if match := re.fullmatch(r"\W*([A-Da-d])\W*", bare):
        return match[1].upper()
    if match := re.match(r"\(?\s*([A-D])\s*[).:]", bare):
        return match[1]
    alike = [LETTERS[n] for n, text in enumerate(options) if _squeezed(text) == _squeezed(content)]
    if alike:
        return alike[0] if len(alike) == 1 else None
    alone = set(re.findall(r"(?<![A-Za-z0-9])([A-D])(?![A-Za-z0-9'])", bare))
    return alone.pop() if len(alone) == 1 else None


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", DRESS.sub("", text)).lower()

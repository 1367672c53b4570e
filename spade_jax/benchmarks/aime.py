r"""AIME 2025 and 2026: the 30 problems of a year, 32 replies to each; the score is Avg@32.

The answer is the integer from 0 to 999 in the last balanced ``\boxed{}``.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spade_jax.benchmarks import asked, files
from spade_jax.benchmarks.interface import Absent, Figures, Item, Outcome, Policy
from spade_jax.environments import parsing
from spade_jax.sampling.interface import SamplingParams

SAMPLES = 32
PROBLEMS = 30
PROMPT = "{problem}\n\nThink step by step, and put the final answer into \\boxed{{}}."
COLUMNS = ("problem", "user_prompt", "question"), ("answer", "ground_truth", "expected_answer")
"""Names that published copies give to a problem and to its answer."""


class AIME:
    """The problems of AIME I and II of a year.

    Args:
      data: folder with ``aime_YEAR``: rows of any of the schemas in docs/evaluation.md.
    """

    params = SamplingParams(max_tokens=32768, temperature=0.7, top_p=0.8, top_k=20)

    def __init__(self, year: int, data: Path):
        self.name, self.title = f"aime_{year}", f"AIME {year}, Avg@{SAMPLES}"
        self._year, self._data = year, data
        self._digest = ""

    async def __aenter__(self) -> "AIME":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def items(self) -> list[Item]:
        command = files.command_for(self._data, self.name, f"MathArena/{self.name}")
        try:
            problems = [_problem(row) for row in files.read(self._data, self.name, command)]
        except ValueError as error:
            raise Absent(f"{self._data / self.name}: {error}", command) from error
        if len({text for text, _ in problems}) != PROBLEMS or len(problems) != PROBLEMS:
            reason = f"{len(problems)} problems, not the {PROBLEMS} of AIME I and II together"
            raise Absent(f"{self._data / self.name} holds {reason}", command)
        self._digest = asked.digest(*(f"{text}\n{gold}" for text, gold in problems))
        return [
            Item(f"{number}/{sample}", self.name, {"problem": text, "gold": gold}, str(number))
            for number, (text, gold) in enumerate(problems, 1)
            for sample in range(SAMPLES)
        ]

    def protocol(self) -> dict[str, Any]:
        return {
            "data": self._digest,
            "samples": SAMPLES,
            "prompt": asked.digest(PROMPT)[:16],
            "extraction": "last balanced box, an integer from 0 to 999",
        }

    def floors(self) -> Figures:
        return {}

    async def attempt(self, item: Item, policy: Policy) -> Outcome:
        question = PROMPT.format(problem=item.data["problem"])

        def judge(reply: str) -> tuple[str | None, bool]:
            found = answer(reply)
            return None if found is None else str(found), found == item.data["gold"]

        return await asked.attempt(self.name, item, policy, self.params, question, judge)


def answer(reply: str) -> int | None:
    """The integer in the last box of a reply, outside its thinking; None if there is none."""
    content = parsing.box_content(parsing.without_thinking(reply))
    return None if content is None else integer(content)


def integer(text: str) -> int | None:
    r"""An integer from 0 to 999, however it is dressed; None if the text is none.

    Read through are ``\text{}`` and its like, dollar signs, degrees, a name before an equals sign,
    commas between thousands, leading zeros and a fraction of zeros.
    """
    text = re.sub(r"\\(?:text|textbf|mathrm|mathbf|boldsymbol|bf|rm)\b\s*", "", text)
    text = re.sub(r"\^?\s*\{?\s*\\(?:circ|degree)\s*\}?|°", "", text)
    text = re.sub(r"[{}$\s]|\\[,;! ]", "", text).rpartition("=")[2].rstrip(".")
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    if not re.fullmatch(r"\d{1,9}(\.0+)?", text, re.ASCII):
        return None
    number = int(text.partition(".")[0])
    return number if number <= 999 else None


def _problem(row: Mapping[str, Any]) -> tuple[str, int]:
    """Problem and answer of a row.

    Raises:
      ValueError: it has none.
    """
    text, gold = (next((row[name] for name in names if name in row), None) for names in COLUMNS)
    if text is None and isinstance(row.get("prompt"), list):  # chat messages and a label
        said = [message["content"] for message in row["prompt"] if message["role"] == "user"]
        text, gold = said[-1] if said else None, row.get("label")
    known = integer(str(gold))
    if not isinstance(text, str) or known is None:
        columns = ", ".join(sorted(row))
        raise ValueError(f"a row without a problem, or with the answer {gold!r}: it has {columns}")
    return text.strip(), known

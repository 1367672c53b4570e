r"""Does the first observation give away the rule that the environment tests?

A rule by text alone, so that everybody gets the same answer. An observation discloses where it
has an equation ``name = expression`` whose right side joins operands by an operator (``+ - * / ^
** × · ÷ %``, or LaTeX's ``\frac``, ``\sqrt``, ``\cdot``, ``\times``) and has a name in it, and one
of the names of the equation is a variable of the program (compared without case). A sum of numbers
alone (``x = 17 + 4``) is a task and no rule. A rule told in words is not seen, nor one whose names
are all others than the program's.
"""

import ast
import dataclasses
import re
from collections.abc import Sequence

import scipy.stats

ARGUMENTS = r"(?:\([^()\n]*\))?"
OPERAND = rf"[-+]?(?:\d[\d.]*[A-Za-z_]*|[A-Za-z_]\w*{ARGUMENTS}|\([^()\n]*\))"
OPERATOR = r"\s*(?:\*\*|[-+*/^×·÷%])\s*"
LATEX = r"[^=\n]*\\(?:frac|sqrt|cdot|times)\b[^=\n]*"
EQUATION = re.compile(
    rf"(?P<left>[A-Za-z_]\w*){ARGUMENTS}\s*(?<![=<>!])=(?!=)\s*"
    rf"(?P<right>{LATEX}|{OPERAND}(?:{OPERATOR}{OPERAND})+)"
)
NAME = re.compile(r"(?<!\\)[A-Za-z_](?:\w*\w)?")
FUNCTIONS = {
    "abs",
    "cos",
    "exp",
    "frac",
    "ln",
    "log",
    "max",
    "min",
    "mod",
    "sin",
    "sqrt",
    "sum",
    "tan",
}


@dataclasses.dataclass(frozen=True)
class Rate:
    """``disclosing`` of ``asked`` environments, with the 95 % Wilson interval of their share."""

    disclosing: int
    asked: int
    low: float
    high: float


def discloses(observation: str, source: str) -> bool:
    """Whether the first observation of a program shows the rule it tests, as the rule above says.

    A source that is no Python has no variables, and nothing discloses it.
    """
    variables = _variables(source)
    for equation in EQUATION.finditer(observation):
        inside = _names(equation["right"])
        if inside and (inside | {equation["left"].lower()}) & variables:
            return True
    return False


def rate(pairs: Sequence[tuple[str, str]]) -> Rate:
    """The share of (first observation, source) that disclose."""
    found = sum(discloses(observation, source) for observation, source in pairs)
    if not pairs:
        return Rate(0, 0, 0.0, 1.0)
    low, high = scipy.stats.binomtest(found, len(pairs)).proportion_ci(method="wilson")
    return Rate(found, len(pairs), float(low), float(high))


def _names(text: str) -> set[str]:
    return {name.lower() for name in NAME.findall(text)} - FUNCTIONS


def _variables(source: str) -> set[str]:
    """Names that the program gives to values; its texts do not count."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id.lower())
        elif isinstance(node, ast.Attribute):
            found.add(node.attr.lower())
        elif isinstance(node, ast.arg):
            found.add(node.arg.lower())
    return found

r"""From what a model wrote to what is run: a designer's program, an agent's action."""

import ast
import re
import warnings

THINKING_START, THINKING_END = "<think>", "</think>"
FENCE = re.compile(r"^[ \t]*```[ \t]*(\w*)[ \t]*$", re.MULTILINE)
LANGUAGES = ("python", "py")
MAX_SOURCE = 65536  # characters
MAX_CLOSINGS = 16  # closing fences tried for one opening, which may lie inside a string
BOX = re.compile(r"\\boxed\s*\{")


class ParseFailure(ValueError):
    """A designer's reply that holds no usable program.

    ``kind``: 'no_code', 'unclosed_fence', 'syntax' or 'too_long'.
    """

    def __init__(self, kind: str, reason: str):
        super().__init__(f"{kind}: {reason}")
        self.kind = kind
        self.reason = reason


def parse_source(reply: str) -> str:
    """The last complete program of a designer's reply, outside its thinking.

    Programs stand in fences labelled ``python`` or ``py``; a reply without such a fence is taken
    whole if it is itself a program. Of several fenced programs the last that defines an environment
    wins, so that neither an early draft nor a closing usage example does.

    Raises:
      ParseFailure: the reply holds no program, a fence without end, or only broken ones.
    """
    reply = without_thinking(reply)
    blocks, unclosed = _fenced(reply)
    if not blocks and unclosed:
        raise ParseFailure("unclosed_fence", "the reply ends inside a code fence")
    if not blocks:
        if not _environment_names(reply):
            raise ParseFailure("no_code", "the reply holds no python code fence and is no program")
        blocks = [reply]
    programs = [block for block in blocks if not syntax_error(block)]
    if not programs:
        raise ParseFailure("syntax", syntax_error(blocks[-1]))
    environments = [program for program in programs if _environment_names(program)]
    source = (environments or programs)[-1].strip("\n") + "\n"
    if len(source) > MAX_SOURCE:
        raise ParseFailure("too_long", f"{len(source)} characters exceed {MAX_SOURCE}")
    return source


def without_thinking(reply: str) -> str:
    """What follows the last ``</think>``, up to a ``<think>`` that nothing closes."""
    return reply.rpartition(THINKING_END)[2].partition(THINKING_START)[0]


def _fenced(reply: str) -> tuple[list[str], bool]:
    """Contents of the closed python fences, and whether the last one has no end."""
    marks = list(FENCE.finditer(reply))
    blocks: list[str] = []
    place = 0
    while place < len(marks):
        opening = marks[place]
        place += 1
        if opening[1].lower() not in LANGUAGES:
            # The mark opens a block of another language; a bare one may be its end.
            continue
        closings = [n for n in range(place, len(marks)) if not marks[n][1]][:MAX_CLOSINGS]
        if not closings:
            return blocks, True
        ends = [reply[opening.end() + 1 : marks[n].start()] for n in closings]
        chosen = next((n for n, text in enumerate(ends) if not syntax_error(text)), 0)
        blocks.append(ends[chosen])
        place = closings[chosen] + 1
    return blocks, False


def syntax_error(source: str) -> str:
    """'' if the source parses, else what is wrong. Nothing is executed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, MemoryError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _environment_names(source: str) -> list[str]:
    return re.findall(r"^class[ \t]+(\w+Env)\b", source, re.MULTILINE)


def box_content(message: str) -> str | None:
    r"""The text inside the last balanced ``\boxed{...}``; None if there is no such box.

    Of nested boxes the inner one is the last. Braces inside are kept, but for pairs that enclose
    all of the content: ``\boxed{{42}}`` is 42 while ``\boxed{a{b}c}`` is a{b}c. Every brace
    counts, escaped or not, so ``\boxed{\{1, 2\}}`` is \{1, 2\}.
    """
    for opening in reversed(list(BOX.finditer(message))):
        end = _closing_brace(message, opening.end())
        if end is not None:
            content = message[opening.end() : end].strip()
            while content.startswith("{") and _closing_brace(content, 1) == len(content) - 1:
                content = content[1:-1].strip()
            return content
    return None


def _closing_brace(text: str, start: int) -> int | None:
    """Index of the brace that closes one opened before ``start``."""
    depth = 1
    for place in range(start, len(text)):
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return place
    return None


def parse_action(reply: str) -> str:
    r"""What an environment's ``step()`` gets for an agent's reply.

    Thinking does not count: a reply that never leaves it is an empty text, and no action. With a
    box it is ``\boxed{content}``, the form that published environments look for; without one the
    whole message, stripped: what to make of a missing box is the environment's business.
    """
    message = without_thinking(reply)
    content = box_content(message)
    return message.strip() if content is None else boxed(content)


def boxed(content: str) -> str:
    r"""``\boxed{content}``."""
    return "\\boxed{" + content + "}"

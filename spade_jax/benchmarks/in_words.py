"""Functions and what they return, told in plain messages, for policies without a place for them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax.benchmarks.interface import Message

PROMPT = """\
You can call these functions, described by one JSON object a line:

{tools}

To call one, write

<tool_call>
{{"name": "FUNCTION", "arguments": {{"PARAMETER": "VALUE"}}}}
</tool_call>

with one such block for each call. What they return is told to you in <tool_response> blocks. \
When nothing is left to be called, answer in words alone.

{message}"""


def with_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> Sequence[Message]:
    """The messages, the first of which describes the tools."""
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    first = PROMPT.format(tools=lines, message=messages[0]["content"])
    return [messages[0] | {"content": first}, *messages[1:]]


def told(messages: Sequence[Message]) -> list[Message]:
    """One user message that says what the messages, of users and tools, do."""
    texts = [
        f"<tool_response>\n{message['content']}\n</tool_response>"
        if message["role"] == "tool"
        else message["content"]
        for message in messages
    ]
    return [{"role": "user", "content": "\n".join(texts)}]


def digest() -> str:
    """Tells the wording apart in protocols."""
    return hashlib.sha256(PROMPT.encode()).hexdigest()[:16]

"""What benchmarks of one question and one answer have in common."""

import hashlib
from collections.abc import Callable
from typing import Any

from spade_jax.benchmarks.interface import Item, Outcome, Policy, Unanswered
from spade_jax.sampling.interface import SamplingParams


async def attempt(
    benchmark: str,
    item: Item,
    policy: Policy,
    params: SamplingParams,
    question: str,
    judge: Callable[[str], tuple[str | None, bool]],
) -> Outcome:
    """One question, one reply.

    Args:
      judge: of a reply, the answer that was found in it and whether it is right.
    """
    record: dict[str, Any] = {}
    messages = [{"role": "user", "content": question}]
    try:
        async with policy.talk(f"{benchmark}/{item.name}", params, messages) as talk:
            record["reply"] = await talk.reply()
    except Unanswered as reason:
        return Outcome(item.name, item.column, 0.0, "not judged", str(reason), record)
    record["answer"], right = judge(record["reply"])
    verdict = "" if right else "no answer" if record["answer"] is None else "wrong"
    return Outcome(item.name, item.column, float(right), verdict, "", record)


def digest(*parts: str) -> str:
    """SHA-256 over texts, told apart."""
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}:{part}".encode())
    return found.hexdigest()

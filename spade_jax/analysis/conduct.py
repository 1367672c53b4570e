"""How a policy goes about an instance: what it says, what of it cannot be read, when it answers."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax.environments.calls import Malformed, parse_calls


@dataclasses.dataclass(frozen=True)
class Conduct:
    """Of one dialogue.

    Attributes:
      length: mean characters of a reply.
      faults: share of replies with a call, or an answer, that cannot be read.
      probes: replies with a call before the first one without (the answer); all if there is none.
    """

    length: float
    faults: float
    probes: int


def of(record: Mapping[str, Any]) -> Conduct | None:
    """Of an outcome's record; None if the policy said nothing.

    A dialogue is under ``said``, as messages. Where there was one reply alone (``reply``), it is
    the answer, and cannot be read if none was found in it (``answer``).
    """
    if (reply := record.get("reply")) is not None:
        return Conduct(len(reply), float(record.get("answer") is None), 0)
    said: Sequence[Mapping[str, str]] = record.get("said", ())
    replies = [each["content"] for each in said if each["role"] == "assistant"]
    if not replies:
        return None
    calls = [parse_calls(reply, {}) for reply in replies]
    faults = [any(isinstance(call, Malformed) for call in found) for found in calls]
    answer = next((place for place, found in enumerate(calls) if not found), len(replies))
    return Conduct(statistics.fmean(map(len, replies)), statistics.fmean(faults), answer)

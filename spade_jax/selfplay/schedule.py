"""What happens in which iteration, for which skill, on which seed: pure functions."""

import hashlib
import re
from collections.abc import Sequence


def starts_epoch(iteration: int, k: int) -> bool:
    return iteration % k == 0


def active_skills(iteration: int, k: int, skills: Sequence[str], active: int) -> list[str]:
    """The skills of the iteration's epoch: ``active`` consecutive ones, rotating and wrapping.

    ``active`` 0, or as many as there are, means all of them in every epoch.
    """
    if not 0 < active < len(skills):
        return list(skills)
    start = (iteration // k) * active
    return [skills[(start + offset) % len(skills)] for offset in range(active)]


def derive_seed(*parts: int | str) -> int:
    """A 31-bit seed that depends on all of ``parts`` and on nothing else."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def play_seeds(
    run_seed: int, environment: str, iteration: int, plays: int, instances: int
) -> list[int]:
    """Instance seeds of an environment's plain plays: fresh in every iteration.

    Args:
      instances: distinct ones among them; play i takes number i mod ``instances``. 0 = one a play.
    """
    distinct = min(instances or plays, plays)
    seeds = [derive_seed(run_seed, "play", environment, iteration, n) for n in range(distinct)]
    return [seeds[play % distinct] for play in range(plays)]


def hinted_seeds(plain: Sequence[int], plays: int) -> list[int]:
    """Hinted play i takes the plain arm's seed i mod n, so that the arms are paired."""
    return [plain[play % len(plain)] for play in range(plays)]


def slug(skill: str) -> str:
    """The skill as part of a file's name."""
    return re.sub(r"\W+", "_", skill.lower())

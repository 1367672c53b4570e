"""One self-contained HTML page out of runs: data, style and script inside, nothing fetched.

What a model wrote reaches the page as compressed JSON and becomes text nodes only; a content
security policy with the hashes of our own style and script forbids all else.
"""

import base64
import gzip
import hashlib
import json
import string
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from spade_jax.analysis import run

LARGEST = 15_000_000  # bytes of a page
LONGEST = 20_000  # characters of one text
EPISODES = (8, 4, 2, 1, 0)  # of an environment in each arm: as many as fit

PHASES = ("design", "hint", "play", "learn", "weights")
# Title, what it says, and the metrics drawn; a name that ends in / stands for all below it.
CHARTS = [
    ("Return", "mean return of an arm's episodes", ["returns/plain", "returns/hinted"]),
    ("Regret", "hinted minus plain return on the same seeds ± one standard error", ["regret/mean"]),
    ("Learnable share", "environments with a win rate in [0.2, 0.8]", ["share/learnable"]),
    (
        "Variety",
        "Vendi score and longest repetition of the programs written, over their number",
        ["variety/vendi", "variety/repetition"],
    ),
    ("Designer reward", "mean over the designers trained", ["designer/reward"]),
    ("Validity", "programs accepted, of those written", ["designer/validity"]),
    ("Refused", "programs, by the reason", ["refused/"]),
    ("Gradient norm", "before clipping", ["grad_norm/agent", "grad_norm/designer"]),
    (
        "Sampler and learner",
        "absolute difference of their log-probs at trained tokens",
        ["logp_gap/mean", "logp_gap/p99"],
    ),
    ("Entropy", "nats, at trained tokens", ["entropy/agent", "entropy/designer"]),
    ("Speed", "tokens a second", [f"time/{phase}_tokens_per_second" for phase in PHASES]),
    ("Time", "seconds of an iteration", [f"time/{phase}" for phase in PHASES]),
]


def build(workdirs: Sequence[Path], reload_seconds: int = 0) -> str:
    """The page of one run or several, of at most ``LARGEST`` bytes.

    Args:
      reload_seconds: how often the page loads itself again; 0 = never.

    Raises:
      run.NoRunError: a directory holds no run, or the page would be too large without a single
        episode.
    """
    runs = [run.read(workdir, max(EPISODES), LONGEST) for workdir in workdirs]
    for row in (row for each in runs for row in each["metrics"]):
        _prepare(row)
    for episodes in EPISODES:
        for environment in (item for each in runs for item in each["environments"]):
            environment["episodes"] = run.first_of_each_arm(environment["episodes"], episodes)
        page = _page({"runs": runs, "charts": CHARTS, "reload": reload_seconds})
        if len(page.encode()) <= LARGEST:
            return page
    raise run.NoRunError(
        f"the page would have more than {LARGEST:,} bytes without a single episode: name fewer runs"
    )


def _prepare(row: dict[str, Any]) -> None:
    """Adds the learnable share; removes what is 0 only because a role had nothing to train on."""
    if row.get("environments/accepted"):
        row["share/learnable"] = row["environments/learnable"] / row["environments/accepted"]
    for role in ("agent", "designer"):
        if not row.get(f"{role}/trained"):
            for name in (f"grad_norm/{role}", f"entropy/{role}"):
                row.pop(name, None)


def _page(data: dict[str, Any]) -> str:
    folder = resources.files("spade_jax.analysis") / "viewer"
    style, script, page = (
        (folder / name).read_text(encoding="utf-8")
        for name in ("style.css", "script.js", "page.html")
    )
    packed = gzip.compress(json.dumps(data, allow_nan=False).encode(), compresslevel=6, mtime=0)
    return string.Template(page).substitute(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=base64.b64encode(packed).decode(),
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

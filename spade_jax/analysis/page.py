"""One self-contained HTML page out of runs: data, style and script inside, nothing fetched.

What a model wrote reaches the page as compressed JSON and becomes text nodes only; a content
security policy with the hashes of our own style and script forbids all else.

All but the episodes is one piece, unpacked when the page opens. Those of an environment are a piece
of their own, unpacked when it is looked at, so that a long run opens as fast as a short one.
"""

import base64
import collections
import gzip
import hashlib
import json
import string
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from spade_jax.analysis import run
from spade_jax.selfplay import manifest

LARGEST = 15_000_000  # bytes of a page
LONGEST = (20_000, 5_000, 1_000)  # characters of one text: the first that leaves episodes room
ROOM = LARGEST // 3  # bytes that all else leaves to the episodes
EPISODES = (1, 2, 4, 8)  # of an environment in each arm: as many as fit, in this order

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
    for longest in LONGEST:
        runs = [run.read(workdir, 0, longest) for workdir in workdirs]
        for row in (row for each in runs for row in each["metrics"]):
            _prepare(row)
        environments = [environment for each in runs for environment in each["environments"]]
        for environment in environments:
            environment["episodes"] = 0  # of those below; put right when they are chosen
        data = {"runs": runs, "charts": CHARTS, "reload": reload_seconds}
        data |= {"longest": longest, "most": max(EPISODES)}
        bare = len(_page(data, [[] for _ in runs]).encode()) + 20 * len(environments)
        if bare <= LARGEST - ROOM:
            break
    if bare > LARGEST:
        raise run.NoRunError(
            f"the page would have more than {LARGEST:,} bytes without a single episode: name fewer "
            "runs"
        )
    return _page(data, _choose(workdirs, runs, longest, LARGEST - bare))


def _choose(
    workdirs: Sequence[Path], runs: list[dict[str, Any]], longest: int, room: int
) -> list[list[str]]:
    """Packed episodes of each environment of each run, '' where it has none, ``room`` bytes in all.

    In rounds of more and more of an environment, in each those written last first, as long as they
    fit. Sets ``episodes`` of each environment to the number that it got.
    """
    chosen = [[""] * len(each["environments"]) for each in runs]
    plays: list[dict[str, list[dict[str, Any]]]] = []
    for workdir in workdirs:
        plays.append(collections.defaultdict(list))
        for play in manifest.read(workdir, "plays").to_pylist():
            plays[-1][play["sha"]].append(play)
    places = [(index, place) for index, all_of in enumerate(chosen) for place in range(len(all_of))]
    newest = sorted(
        places, key=lambda at: runs[at[0]]["environments"][at[1]]["written"], reverse=True
    )
    for count in EPISODES:
        for index, place in newest:
            item = runs[index]["environments"][place]
            episodes = run.read_episodes(
                workdirs[index], item["name"], plays[index][item["sha"]], count, longest
            )
            if len(episodes) == item["episodes"]:
                continue  # it has no more
            packed = _pack(episodes)
            room -= len(packed) - len(chosen[index][place])
            if room < 0:
                return chosen
            chosen[index][place], item["episodes"] = packed, len(episodes)
    return chosen


def _prepare(row: dict[str, Any]) -> None:
    """Adds the learnable share; removes what is 0 only because a role had nothing to train on."""
    if row.get("environments/accepted"):
        row["share/learnable"] = row["environments/learnable"] / row["environments/accepted"]
    for role in ("agent", "designer"):
        if not row.get(f"{role}/trained") or row.get(f"trained_tokens/{role}") == 0:
            for name in (f"grad_norm/{role}", f"entropy/{role}"):
                row.pop(name, None)


def _page(data: dict[str, Any], episodes: list[list[str]]) -> str:
    folder = resources.files("spade_jax.analysis") / "viewer"
    style, script, page = (
        (folder / name).read_text(encoding="utf-8")
        for name in ("style.css", "script.js", "page.html")
    )
    return string.Template(page).substitute(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=_pack(data),
        episodes=json.dumps(episodes, separators=(",", ":")),
    )


def _pack(data: Any) -> str:
    """JSON, compressed, in letters; the inverse is ``unpack`` of the page's script."""
    packed = gzip.compress(json.dumps(data, allow_nan=False).encode(), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode()


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

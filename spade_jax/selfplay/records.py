"""The run directory: everything a person may want to read of a run, written as it happens."""

import collections
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from spade_jax.data.corpus import BadRow, Document
from spade_jax.environments.pools import Pool
from spade_jax.selfplay.agent import Episode
from spade_jax.selfplay.designer import Attempt
from spade_jax.selfplay.manifest import Manifest
from spade_jax.selfplay.state import Environment


class Recorder(Protocol):
    """What the cycle tells of its doings; see :class:`Records`."""

    def environment(self, environment: Environment, attempt: Attempt | None = None) -> None: ...

    def rejection(self, iteration: int, attempt: Attempt) -> None: ...

    def episode(self, episode: Episode) -> None: ...

    def designer(
        self,
        iteration: int,
        environment: Environment,
        win_rate: float | None,
        regret: float | None,
        reward: float | None,
        advantage: float | None,
    ) -> None: ...


class Unrecorded:
    """The recorder of processes that leave writing to the first one."""

    def environment(self, *_: Any, **__: Any) -> None:
        pass

    rejection = episode = designer = environment


class Records:
    """Writers of one run directory. Writing a thing again replaces it, so a resume is harmless.

    Layout: ``metrics.jsonl``, ``corpus.json``, ``pool.json``, ``manifest/TABLE/ITERATION.parquet``,
    ``environments/NAME/{environment.json,source.py,hint.txt,checks.json}``,
    ``rejections/NAME.json``, ``episodes/ITERATION/NAME_ARM_PLAY.json``.
    """

    def __init__(self, workdir: Path):
        self.workdir = workdir
        workdir.mkdir(parents=True, exist_ok=True)
        self._manifest = Manifest(workdir / "manifest")

    def environment(self, environment: Environment, attempt: Attempt | None = None) -> None:
        """``attempt``: the one that wrote it; None where it comes from elsewhere."""
        folder = self._folder("environments", environment.name)
        (folder / "source.py").write_text(environment.source, encoding="utf-8")
        (folder / "hint.txt").write_text(environment.hint or "", encoding="utf-8")
        document = attempt.document if attempt else None
        facts = {
            "sha": environment.sha,
            "skill": environment.skill,
            "written": environment.written,
            "slot": environment.slot,
            "attempt": attempt.number if attempt else None,
            "origin": environment.origin,
            "document": {"id": document.id, "title": document.title} if document else None,
            "exemplars": environment.exemplars,
            "hint": environment.hint,
            "hint_leaks": environment.hint_leaks,
            "placebo": environment.placebo,
        }
        _write(folder / "environment.json", facts)
        if attempt:
            _write(folder / "checks.json", _checks(attempt))
            self._attempt(environment.written, attempt)
        columns = ("sha", "name", "skill", "written", "slot", "document", "exemplars", "hint")
        known = {column: getattr(environment, column) for column in columns}
        self._manifest.add("environments", attempt=facts["attempt"], **known)

    def rejection(self, iteration: int, attempt: Attempt) -> None:
        name = f"{iteration:05d}_{attempt.slot.index:03d}_{attempt.number}"
        facts = {
            "iteration": iteration,
            "slot": attempt.slot.index,
            "skill": attempt.slot.skill,
            "attempt": attempt.number,
            "outcome": attempt.outcome,
            "reason": attempt.reason,
            "document": attempt.document.id if attempt.document else None,
            "reply": attempt.reply,
            "source": attempt.source,
            "checks": _checks(attempt),
        }
        _write(self._folder("rejections") / f"{name}.json", facts)
        self._attempt(iteration, attempt)

    def _attempt(self, iteration: int, attempt: Attempt) -> None:
        source = attempt.source.encode()
        checks = [
            {**check, "measurements": json.dumps(check["measurements"])}
            for check in _checks(attempt)
        ]
        self._manifest.add(
            "attempts",
            written=iteration,
            slot=attempt.slot.index,
            attempt=attempt.number,
            skill=attempt.slot.skill,
            document=attempt.document.id if attempt.document else None,
            exemplars=[record.environment for record in attempt.exemplars],
            outcome=attempt.outcome,
            reason=attempt.reason,
            sha=hashlib.sha256(source).hexdigest() if source else None,
            tokens=sum(attempt.sample.trained) if attempt.sample else None,
            checks=checks,
        )

    def episode(self, episode: Episode) -> None:
        environment = episode.environment
        facts = {
            "environment": environment.name,
            "sha": environment.sha,
            "skill": environment.skill,
            "iteration": episode.iteration,
            "arm": episode.arm,
            "seed": episode.seed,
            "status": episode.status,
            "fault": episode.fault,
            "return": episode.episode_return if episode.scored else None,
            "hint": episode.hint,
            "first_observation": episode.observation,
            "turns": [dataclasses.asdict(turn) for turn in episode.turns],
            "tokens": sum(sum(sample.trained) for sample in episode.samples),
        }
        name = f"{environment.name}_{episode.arm}_{episode.play:03d}.json"
        _write(self._folder("episodes", f"{episode.iteration:05d}") / name, facts)
        columns = ("sha", "iteration", "arm", "seed", "status", "return", "tokens")
        known = {column: facts[column] for column in columns}
        self._manifest.add("plays", play=episode.play, turns=len(episode.turns), **known)

    def designer(
        self,
        iteration: int,
        environment: Environment,
        win_rate: float | None,
        regret: float | None,
        reward: float | None,
        advantage: float | None,
    ) -> None:
        """What the environment's designer was paid in ``iteration``; None = there was nothing."""
        self._manifest.add(
            "designers",
            sha=environment.sha,
            trained=iteration,
            win_rate=win_rate,
            regret=regret,
            reward=reward,
            advantage=advantage,
        )

    def corpus(self, documents: Sequence[Document], bad_rows: Sequence[BadRow]) -> None:
        """How many documents there are, and every row of the corpus that is none."""
        facts = {
            "documents": len(documents),
            "bad_rows": [dataclasses.asdict(row) for row in bad_rows],
        }
        _write(self.workdir / "corpus.json", facts)

    def pool(self, pool: Pool) -> None:
        """Which environments there are to draw from, and every row of the pool that is none."""
        facts = {
            "digest": pool.digest,
            "programs": len(pool.programs),
            "skills": collections.Counter(program.skill for program in pool.programs),
            "bad_rows": [dataclasses.asdict(row) for row in pool.bad_rows],
        }
        _write(self.workdir / "pool.json", facts)

    def metrics(self, row: Mapping[str, Any]) -> None:
        """The row of an iteration, and its part of the manifest."""
        self._manifest.flush(row["iteration"])
        with (self.workdir / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.workdir)

    def drop_from(self, iteration: int) -> None:
        """Removes what was made in iterations that a resumed run is about to repeat.

        Sampled by servers elsewhere, they will not be the same again.
        """
        self._manifest.drop_from(iteration)
        for folder in ("environments", "rejections", "episodes"):
            for path in self._folder(folder).iterdir():
                if path.name[:5].isdigit() and int(path.name[:5]) >= iteration:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self.workdir.glob("evaluation/step-*"):  # step-N: of the policy after N of them
            if path.name[5:].isdigit() and int(path.name[5:]) > iteration:
                shutil.rmtree(path)
        rows = [row for row in self.read_metrics() if row["iteration"] < iteration]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        temporary = self.workdir / "metrics.jsonl.tmp"
        temporary.write_text(text)
        os.replace(temporary, self.workdir / "metrics.jsonl")

    def _folder(self, *parts: str) -> Path:
        folder = self.workdir.joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """Rows of the metrics of the run in ``workdir``; none where it has written none yet."""
    path = workdir / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def _checks(attempt: Attempt) -> list[dict[str, Any]]:
    return [dataclasses.asdict(check) for check in attempt.report.checks] if attempt.report else []


def _write(path: Path, facts: Any) -> None:
    path.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

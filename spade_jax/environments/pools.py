"""Pools: environments that exist already, read from where they lie."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spade_jax import config
from spade_jax.data import rows

LAPTOP = "laptop"
PACKAGED = Path(__file__).with_name("pool") / "laptop.parquet"
"""The pool of that name; docs/baselines.md says where it comes from."""
UNKNOWN = "unknown"
SKILLS = {
    re.sub(r"\W+", "_", skill.lower()): skill for skill in config.GAME_SKILLS + config.TOOL_SKILLS
}
"""Slug, as in file names -> skill."""


@dataclasses.dataclass(frozen=True)
class Program:
    """One environment of a pool.

    Attributes:
      name: file or row; unique and stable within the pool.
      skill: ``UNKNOWN`` where nothing names it.
    """

    name: str
    source: str
    skill: str = UNKNOWN

    @functools.cached_property
    def sha(self) -> str:
        """SHA-256 of the source: the environment's identity everywhere."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class BadRow:
    """A file or row that holds no program to be trusted."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Pool:
    """Programs in the order of the source, and all that was left out of it."""

    programs: tuple[Program, ...]
    bad_rows: tuple[BadRow, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the identities of the programs, whatever their order."""
        identities = sorted(program.sha for program in self.programs)
        return hashlib.sha256("".join(identities).encode()).hexdigest()


def read(source: str) -> Pool:
    """The programs of a pool; what is none, or does not match its checksum, is a bad row.

    Args:
      source: ``laptop`` (comes with the package); a folder with Python files, such as
        ``environments/`` of a run, whose skills and checksums are taken from the
        ``environment.json`` beside a file or else the skill from the file's name; or a data set for
        :func:`spade_jax.data.rows.open_rows` with the columns of the published pools: ``code`` and,
        where it has them, ``file_name``, ``skill`` and ``sha256``.

    Raises:
      rows.SourceError: there is no such pool, or no program in it.
    """
    if source == LAPTOP:
        source = str(PACKAGED)
    found = list(_files(Path(source)) if Path(source).is_dir() else _rows(rows.open_rows(source)))
    programs = tuple(item for item in found if isinstance(item, Program))
    bad_rows = tuple(item for item in found if isinstance(item, BadRow))
    if not programs:
        wrong = f"; {told(bad_rows)}" if bad_rows else ""
        reason = "no .py file, and no row with a string in 'code'"
        raise rows.SourceError(f"{source!r}: {reason}{wrong}")
    return Pool(programs, bad_rows)


def distinct(pool: Pool) -> Pool:
    """The pool with programs that repeat an earlier one among its bad rows."""
    first: dict[str, Program] = {}
    repeated = []
    for program in pool.programs:
        if first.setdefault(program.sha, program) is not program:
            reason = f"the same program as {first[program.sha].name}"
            repeated.append(BadRow(program.name, reason))
    return Pool(tuple(first.values()), (*pool.bad_rows, *repeated))


def told(bad_rows: Sequence[BadRow], shown: int = 5) -> str:
    """How many there are, and the first of them with their reasons, for messages."""
    first = ", ".join(f"{row.name} ({row.reason})" for row in bad_rows[:shown])
    more = ", …" if len(bad_rows) > shown else ""
    return f"{len(bad_rows)} bad rows: {first}{more}"


def _files(folder: Path) -> Iterator[Program | BadRow]:
    for path in sorted(path for path in folder.rglob("*.py") if path.is_file()):
        if path.name == "__init__.py":  # of a package of environments
            continue
        name = str(path.relative_to(folder))
        try:
            facts = _beside(path)
            source = path.read_bytes().decode()
            yield _program(name, source, facts.get("skill"), facts.get("sha"))
        except UnicodeDecodeError:
            yield BadRow(name, "not UTF-8")
        except rows.RowError as error:
            yield BadRow(name, str(error))


def _beside(path: Path) -> Mapping[str, Any]:
    """What a run recorded of the program, if it comes from one."""
    facts = path.with_name("environment.json")
    if not facts.exists():
        return {}
    try:
        found = json.loads(facts.read_text("utf-8"))
    except ValueError as error:
        raise rows.RowError(f"its environment.json is not JSON ({error})") from error
    return found if isinstance(found, dict) else {}


def _rows(table: rows.Rows) -> Iterator[Program | BadRow]:
    for index in range(len(table)):
        name = table.name(index)
        try:
            row = table[index]
            code = row.get("code")
            if not isinstance(code, str):
                raise rows.RowError("no string in 'code'")
            file_name = row.get("file_name")
            if isinstance(file_name, str) and file_name:
                name = f"{name} {file_name}"
            yield _program(name, code, row.get("skill"), row.get("sha256"))
        except rows.RowError as error:
            yield BadRow(name, str(error))


def _program(name: str, source: str, skill: Any, sha: Any) -> Program:
    """Raises RowError where the source is no text or, if one is recorded, not that of ``sha``."""
    program = Program(name, source, _skill(name, skill))
    try:
        found = program.sha
    except UnicodeEncodeError as error:
        raise rows.RowError("its program has half a surrogate pair") from error
    if isinstance(sha, str) and sha and sha.lower() != found:
        raise rows.RowError(f"its SHA-256 is {found[:12]}…, not {sha[:12]}… as recorded")
    return program


def _skill(name: str, skill: Any) -> str:
    """The skill as the row has it, in our spelling of known ones; else the one in the name."""
    if isinstance(skill, str) and skill.strip():
        return SKILLS.get(re.sub(r"\W+", "_", skill.strip().lower()), skill.strip())
    slugs = re.sub(r"\W+", "_", name.lower())
    return next((known for slug, known in SKILLS.items() if slug in slugs), UNKNOWN)

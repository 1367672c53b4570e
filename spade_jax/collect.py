"""A pool out of the environments that runs have accepted: distinct, evenly many of each skill.

    python -m spade_jax.collect runs/first runs/second --out=pool.parquet --per_skill=12
    python -m spade_jax.train --config=configs/fixed_pool.py --config.pool.source=pool.parquet

The file has the columns of the published pools and ``origin``, the place of each program in its
run. Of programs as alike as ``--similarity`` says, the first is kept. Of each skill, evenly spaced
ones are taken, from the runs' first to their last.
"""

import argparse
import collections
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
from rich.console import Console

from spade_jax.data import rows
from spade_jax.environments import pools, similarity
from spade_jax.environments.pools import Program
from spade_jax.selfplay import schedule

COLUMNS = pyarrow.schema(
    {
        "game_id": pyarrow.int32(),
        "file_name": pyarrow.string(),
        "original_file_name": pyarrow.string(),
        "skill": pyarrow.string(),
        "sha256": pyarrow.string(),
        "line_count": pyarrow.int32(),
        "byte_count": pyarrow.int32(),
        "code": pyarrow.string(),
        "origin": pyarrow.string(),
    }
)


def select(programs: Sequence[Program], per_skill: int, alike: float) -> list[Program]:
    """At most ``per_skill`` programs of each skill, none ``alike`` to one before it; by skill."""
    doubles = similarity.duplicates([program.source for program in programs], alike)
    by_skill: dict[str, list[Program]] = collections.defaultdict(list)
    for program, double in zip(programs, doubles, strict=True):
        if double is None:
            by_skill[program.skill].append(program)
    return [
        found[i * len(found) // min(per_skill, len(found))]
        for _, found in sorted(by_skill.items())
        for i in range(min(per_skill, len(found)))
    ]


def table(programs: Sequence[Program]) -> pyarrow.Table:
    """The programs as rows of ``COLUMNS``."""
    return pyarrow.Table.from_pylist(
        [
            {
                "game_id": number,
                "file_name": f"game_{number:05d}_{schedule.slug(program.skill)}.py",
                "original_file_name": Path(program.name).name,
                "skill": program.skill,
                "sha256": program.sha,
                "line_count": len(program.source.splitlines()),
                "byte_count": len(program.source.encode()),
                "code": program.source,
                "origin": program.name,
            }
            for number, program in enumerate(programs)
        ],
        COLUMNS,
    )


def collect(chosen: argparse.Namespace, console: Console) -> None:
    programs: list[Program] = []
    for run in chosen.runs:
        pool = pools.read(str(run / "environments"))
        if pool.bad_rows:
            console.print(f"{run}: {pools.told(pool.bad_rows)}", markup=False)
        programs += [
            Program(f"{run.name}/{program.name}", program.source, program.skill)
            for program in pool.programs
        ]
    selected = select(programs, chosen.per_skill, chosen.similarity)
    pyarrow.parquet.write_table(table(selected), chosen.out, compression="zstd")
    counts = collections.Counter(program.skill for program in selected)
    shown = ", ".join(f"{skill} {count}" for skill, count in sorted(counts.items()))
    console.print(
        f"{chosen.out}: {len(selected)} of {len(programs)} environments: {shown}", soft_wrap=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run directories")
    parser.add_argument("--out", required=True, type=Path, help="Parquet file to write")
    parser.add_argument("--per_skill", type=int, default=12, help="environments of each skill")
    parser.add_argument("--similarity", type=float, default=0.9, help="1 = equal programs only")
    console = Console()
    try:
        collect(parser.parse_args(), console)
    except rows.SourceError as error:
        console.print(f"{type(error).__name__}: {error}", markup=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

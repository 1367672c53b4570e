"""The figures of :mod:`spade_jax.compile` for people: one step as a table, many as Markdown."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

GIB = 2.0**30


def show(figures: dict[str, Any], console: Console) -> None:
    """Prints the figures as one table."""
    table = Table("", "", title=f"one training step on {figures['topology']}", show_header=False)
    mesh = ", ".join(f"{axis} {size}" for axis, size in figures["mesh"].items() if size > 1)
    table.add_row("devices", f"{figures['devices']}: {mesh or 'one'}")
    table.add_row("tokens", f"{figures['tokens_per_step']:,} in {figures['micro_batches']} passes")
    for name, kinds in figures["memory_bytes"].items():
        parts = ", ".join(f"{kind} {size / GIB:.2f}" for kind, size in kinds.items() if size)
        table.add_row(f"GiB a device: {name}", parts)
    table.add_row("share of HBM", f"{figures['hbm_fraction']:.1%}, in {figures['largest_program']}")
    parts = ", ".join(f"{kind} {size / GIB:.2f}" for kind, size in figures["sampler_bytes"].items())
    table.add_row("GiB a device that samples: sampler", parts)
    table.add_row("share of HBM with it", f"{figures['hbm_fraction_with_sampler']:.1%}")
    for kind, size in figures["collective_bytes"].items():
        table.add_row(f"GiB a device: {kind}", f"{size / GIB:.3f}")
    table.add_row("model FLOPs", f"{figures['model_flops']:.3e}")
    for cause, seconds in figures["seconds"].items():
        table.add_row(f"seconds: {cause}", f"{seconds:.4f}")
    table.add_row("estimated step", f"{figures['estimated_step_seconds']:.4f} s")
    table.add_row("estimated MFU", f"{figures['estimated_mfu']:.1%}")
    table.add_row("charged by formula", f"{figures['charged_share']:.1%} of the time")
    console.print(table)


def show_sampler(figures: dict[str, Any], console: Console) -> None:
    """Prints the figures of the sampler as one table."""
    table = Table("", "", title=f"sampling on {figures['topology']}", show_header=False)
    mesh = ", ".join(f"{axis} {size}" for axis, size in figures["mesh"].items() if size > 1)
    table.add_row("hosts that sample as one", f"{figures['hosts_per_replica']}: {mesh or 'one'}")
    table.add_row("cache", f"{figures['cache_tokens']:,} tokens, {figures['cache_mb']:,} MiB")
    for name, kinds in figures["memory_bytes"].items():
        parts = ", ".join(f"{kind} {size / GIB:.2f}" for kind, size in kinds.items() if size)
        rows = f"{figures['rows'][name]} x {figures['lengths'][name]:,}"
        table.add_row(f"GiB a device: {name} {rows}", parts)
    table.add_row("share of HBM", f"{figures['hbm_fraction']:.1%}")
    in_flight = (
        f"{figures['sequences_in_flight']} sequences, {figures['tokens_in_flight']:,} tokens"
    )
    table.add_row("in flight", in_flight)
    for cause, seconds in figures["decode_seconds"].items():
        table.add_row(f"seconds of a decode call: {cause}", f"{seconds:.4f}")
    table.add_row("tokens/s in that call", f"{figures['decode_tokens_per_second']:,.0f}")
    table.add_row("tokens/s at most, by memory", f"{figures['ceiling_tokens_per_second']:,.0f}")
    console.print(table)


def read(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """Figures of files of ``--json``, and of all such in folders, by name."""
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def markdown_plans(plans: Iterable[dict[str, Any]]) -> str:
    """One row a plan of sampling; each figure is of a replica, GB of a device."""
    heads = (
        "model", "topology", "hosts", "split", "GB of weights", "learner at rest",
        "cache, tokens", "in flight: sequences, tokens", "tokens/s at most",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in plans:
        cells = [
            one["model"].rpartition("/")[2],
            one["topology"],
            str(one["hosts_per_replica"]),
            ", ".join(f"{axis} {size}" for axis, size in one["mesh"].items() if size > 1),
            f"{one['weights_bytes'] / 1e9:.1f}",
            f"{one['resting_bytes'] / 1e9:.1f}",
        ]
        if one["short_bytes"]:
            cells += [f"does not fit: {one['short_bytes'] / 1e9:.1f} GB short", "", ""]
        else:
            cells += [
                f"{one['cache_tokens']:,}",
                f"{one['sequences_in_flight']}, {one['tokens_in_flight']:,}",
                f"{one['ceiling_tokens_per_second']:,.0f}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def markdown(steps: Iterable[dict[str, Any]]) -> str:
    """One row a training step."""
    heads = (
        "model", "topology", "mesh", "tokens a step, a row", "GiB a device", "of HBM",
        "with the sampler", "GiB sent", "step", "MFU", "by formula",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for step in steps:
        mesh = ", ".join(f"{axis} {size}" for axis, size in step["mesh"].items() if size > 1)
        cells = (
            step["model"].rpartition("/")[2],
            step["topology"],
            mesh,
            f"{step['tokens_per_step']:,}, {step['row_length']:,}",
            f"{step['memory_bytes'][step['largest_program']]['total'] / GIB:.1f}",
            f"{step['hbm_fraction']:.0%}",
            f"{step['hbm_fraction_with_sampler']:.0%}",
            f"{sum(step['collective_bytes'].values()) / GIB:.0f}",
            f"{step['estimated_step_seconds']:.1f} s",
            f"{step['estimated_mfu']:.0%}",
            f"{step['charged_share']:.0%}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)

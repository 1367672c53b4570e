"""MaxText's training step of the 30B, compiled and estimated as ours is by spade_jax.compile.

MaxText wants Python 3.12 and a newer jax than ours, so it gets an environment of its own:

    python3.12 -m venv maxtext
    maxtext/bin/pip install --no-deps maxtext==0.2.5
    maxtext/bin/pip install jax==0.11.1 libtpu==0.0.46 flax==0.12.12 optax orbax-checkpoint \
        grain ml_collections jinja2 aqtp drjax jaxtyping omegaconf pathwaysutils pillow pydantic \
        qwix sentencepiece sympy tiktoken tokamax transformers
    PYTHONPATH=. maxtext/bin/python tests/perf/maxtext_step.py --ours ours.json --json maxtext.json

``ours.json`` is of ``spade_jax.compile`` (docs/compile.md, Beside MaxText), run where we are
installed. Model, topology, tokens, dtypes, optimizer and mesh are the same (fsdp 16, expert 4);
MaxText has one program a step, with cross-entropy for a loss. Any setting of MaxText's may follow
as KEY=VALUE. Five minutes of a core.
"""

import argparse
import json
import os
import runpy
from pathlib import Path
from typing import Any

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

import maxtext
from maxtext.trainers.pre_train import train_compile

from spade_jax import aot, compile, config
from spade_jax.chips import CHIPS
from spade_jax.hlo import Program
from spade_jax.models import flops

ROWS, LENGTH = 64, 8192
SETTINGS = {
    "run_name": "compiled",
    "model_name": "qwen3-30b-a3b",
    "compile_topology": "v5p-128",  # 64 chips, 4x4x4
    "compile_topology_num_slices": 1,
    "per_device_batch_size": 1,
    "max_target_length": LENGTH,
    "ici_fsdp_parallelism": 16,
    "ici_expert_parallelism": 4,
    "attention": "flash",
    "dtype": "bfloat16",
    "weight_dtype": "float32",
    "remat_policy": "full",
    "dataset_type": "synthetic",
    "enable_checkpointing": False,
}


def compiled(settings: dict[str, Any]) -> Any:
    """What MaxText's own ahead-of-time program compiles."""
    kept = []
    compile_ = train_compile.jit_and_compile

    def keep(*arguments: Any) -> Any:
        kept.append(compile_(*arguments))
        return kept[-1]

    train_compile.jit_and_compile = keep
    base = Path(maxtext.__file__).parent / "configs" / "base.yml"
    train_compile.main(["", str(base), *(f"{key}={value}" for key, value in settings.items())])
    return kept[0]


def estimate(program: Any) -> dict[str, Any]:
    """The figures of docs/compile.md, of MaxText's program."""
    games = runpy.run_path(str(Path(__file__).parents[2] / "configs" / "games.py"))
    ours = config.from_config_dict(games["get_config"]("30b"))
    ours = compile.in_rows(ours, LENGTH, ROWS * LENGTH)
    model, chip = compile.model_config(ours.model), CHIPS["v5p"]
    text = program.as_text()
    cost = Program.parse(text).cost(1)
    if not cost.kernels:
        raise RuntimeError("no kernels in MaxText's program: the estimate would miss their time")
    seconds = compile._times(cost, ours, model, chip, ROWS * LENGTH, ROWS)
    total = sum(seconds.values())
    needed = 3 * ROWS * LENGTH * flops.Forward.of(model, LENGTH).total
    memory = aot.memory(program, 0)
    return {
        "memory_bytes": memory,
        "hbm_fraction": memory["total"] / chip.hbm,
        "collective_bytes": dict(cost.bytes),
        "model_flops": needed,
        "seconds": seconds,
        "estimated_step_seconds": total,
        "estimated_mfu": needed / (total * chip.flops * ROWS),
        "kernels": dict(cost.kernels),
    }


def row(name: str, figures: dict[str, Any], memory: float) -> str:
    """Of a Markdown table."""
    sent = figures["collective_bytes"]
    cells = [
        name,
        f"{memory / 2**30:.1f}",
        f"{figures['model_flops']:.2e}",
        ", ".join(f"{kind} {size / 2**30:.1f}" for kind, size in sorted(sent.items())),
        *(f"{figures['seconds'][cause]:.2f}" for cause in ("compiler", "collectives", "kernels")),
        f"{figures['estimated_step_seconds']:.2f}",
        f"{figures['estimated_mfu']:.1%}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", help="of MaxText, KEY=VALUE")
    parser.add_argument("--ours", type=Path, help="a file of spade_jax.compile --json")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = dict(setting.split("=", 1) for setting in arguments.settings)
    theirs = estimate(compiled(SETTINGS | chosen))
    if arguments.json:
        arguments.json.write_text(json.dumps(theirs, indent=1) + "\n")
    heads = ("", "GiB a device", "model FLOPs", "GiB sent", "compiler s", "collectives s",
             "kernels s", "step s", "MFU")  # fmt: skip
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    if arguments.ours:
        ours = json.loads(arguments.ours.read_text())
        print(row("ours", ours, max(kinds["total"] for kinds in ours["memory_bytes"].values())))
    print(row("MaxText", theirs, theirs["memory_bytes"]["total"]))


if __name__ == "__main__":
    main()

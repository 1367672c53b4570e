"""Speed and memory of a learner step, beside TRL's GRPO training step on the same trajectories.

    pip install -e '.[perf]'
    python tests/perf/learner.py --json learner.json      # a quarter of an hour on two quiet cores

Both start from the same weights in float32, with all threads, AdamW, a clip of 1 and no recomputed
products, and must find the same gradient norm. A step is everything from trajectories on the host
to moved weights (moved by 0: each step starts from the same). TRL gets trajectories sorted by
length, in the micro-batch of 1, 2, 4 or 8 that is fastest on a sample of them. Each contender is a
process of its own; the two step in turns. Tokens are those of trajectories, padding not counted.
Memory is the peak above what the process held before its model, libraries being imported.
"""

import argparse
import importlib
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version

import figures
import numpy as np

COMMON = {
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
SIZES = {
    "10m": COMMON
    | {
        "vocab_size": 8192,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 32,
    },
    "135m": COMMON
    | {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
    },
}
CASES = [f"{kind}_{size}" for kind in ("ragged", "equal") for size in SIZES]
COUNT = {"10m": 192, "135m": 24}
SAMPLED = {"10m": 32, "135m": 8}  # trajectories, of all lengths, for TRL's micro-batch
LONGEST = 2048
PLACES = 2048  # of a micro-batch of ours, in rows as long as the longest trajectory
MICRO_BATCHES = (1, 2, 4, 8)
LIBRARIES = {
    "ours": ("jax", "spade_jax.learner.step", "spade_jax.models.huggingface"),
    "trl": ("datasets", "tokenizers", "torch", "transformers", "trl.trainer.grpo_trainer"),
}


def trajectories(case: str, share: float) -> list[dict]:
    """Log-normal lengths of median 200 and at most 2,048, shortest first, or their mean for all.

    The first quarter is the prompt; advantages are standard normal.
    """
    kind, size = case.split("_")
    rng = np.random.default_rng(0)
    drawn = rng.lognormal(math.log(200), 0.8, 8 * math.ceil(COUNT[size] * share / 8))
    lengths = np.sort(np.clip(drawn, 8, LONGEST).astype(int))
    if kind == "equal":
        lengths[:] = lengths.mean()
    return [
        {
            "tokens": rng.integers(3, SIZES[size]["vocab_size"], length).tolist(),
            "prompt": int(length) // 4,
            "advantage": float(rng.normal()),
        }
        for length in lengths
    ]


def write_weights(size: str, folder: pathlib.Path) -> None:
    """Random weights as transformers makes and stores them."""
    import transformers

    transformers.set_seed(0)
    config = transformers.Qwen3Config(**SIZES[size])
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)


def ours(data: list[dict], weights: pathlib.Path) -> dict[str, Callable]:
    """What this contender does on demand; a step returns the gradient norm."""
    import jax

    from spade_jax import config
    from spade_jax.learner.metrics import policy_metrics
    from spade_jax.learner.packing import Trajectory, pack
    from spade_jax.learner.step import Learner
    from spade_jax.models import huggingface

    # The sampler found every token impossible: importance weights are at their cap, which is 1.
    length = 8 * math.ceil(max(len(item["tokens"]) for item in data) / 8)
    rows = max(1, PLACES // length)
    settings = config.Learner(row_length=length, rows=rows, importance_cap=1.0, learning_rate=0.0)
    learner = Learner(huggingface.load(weights, config.Model()), settings, ("all",))
    batch = []
    for item in data:
        count = len(item["tokens"])
        trained = [place >= item["prompt"] for place in range(count)]
        batch.append(Trajectory(item["tokens"], trained, [-math.inf] * count, item["advantage"]))
    packed = pack(batch, length, rows, 1)

    def warm_up() -> None:
        of_each_shape = {micro.token_bt.shape: micro for micro in packed[0]}
        total, _, outputs = learner._gradient(learner._policy, [list(of_each_shape.values())])
        jax.block_until_ready((learner._move(total, 0.0), outputs))

    def outside() -> None:
        again = pack(batch, length, rows, 1)
        zeros = [
            {key: np.zeros_like(x.advantage_bt) for key in ("logp", "entropy")} for x in again[0]
        ]
        jax.block_until_ready([learner._place(micro) for micro in again[0]])
        policy_metrics(again, [zeros], ("all",), 1.0)

    def step() -> float:
        return learner.update(batch)["grad_norm/all"]

    return {"warm_up": warm_up, "outside": outside, "step": step}


def trl(data: list[dict], weights: pathlib.Path, micro: int) -> dict[str, Callable]:
    """What this contender does on demand; a step returns the gradient norm."""
    import datasets
    import tokenizers
    import torch
    import transformers
    import trl

    class Given(trl.GRPOTrainer):
        """TRL's trainer, fed with trajectories that have been sampled already."""

        def _prepare_inputs(self, inputs):
            return inputs

    passes = len(data) // micro
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, "a": 3}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))
    trainer = Given(
        model=transformers.Qwen3ForCausalLM.from_pretrained(weights),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=tempfile.mkdtemp(dir=weights),
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=passes,
            num_generations=2,
            max_completion_length=LONGEST,
            loss_type="grpo",
            beta=0.0,
            temperature=1.0,
            learning_rate=0.0,
            adam_beta2=0.98,
            weight_decay=0.1,
            max_grad_norm=1.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["a"] * len(data)}),
        processing_class=transformers.PreTrainedTokenizerFast(
            tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
        ),
    )
    trainer.current_gradient_accumulation_steps = passes
    optimizer = trainer.create_optimizer()
    trainer.model.train()

    def warm_up() -> None:
        trainer.training_step(trainer.model, padded(data[:micro]), None)
        optimizer.zero_grad()

    def step() -> float:
        for start in range(0, len(data), micro):
            trainer.training_step(trainer.model, padded(data[start : start + micro]), None)
        norm = torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(norm)

    return {"warm_up": warm_up, "step": step}


def padded(items: list[dict]) -> dict:
    """What TRL's loss reads: prompts padded on the left, completions on the right."""
    import torch
    from trl.trainer.utils import pad

    def stack(rows: list[list[int]], side: str) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = [torch.tensor(row) for row in rows]
        masks = [torch.ones_like(row) for row in tensors]
        return pad(tensors, 0, side), pad(masks, 0, side)

    prompt_ids, prompt_mask = stack([item["tokens"][: item["prompt"]] for item in items], "left")
    ids, mask = stack([item["tokens"][item["prompt"] :] for item in items], "right")
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": torch.tensor([item["advantage"] for item in items]),
    }


def held() -> int:
    """Bytes of memory that this process holds."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def serve(arguments: argparse.Namespace) -> None:
    """A contender: makes the steps that standard input asks for, one line of JSON for each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for library in LIBRARIES["trl" if arguments.micro else "ours"]:
        importlib.import_module(library)
    data = trajectories(arguments.serve, arguments.share)
    if arguments.sample:
        data = data[:: max(1, len(data) // arguments.sample)][: arguments.sample]
    weights, before = pathlib.Path(arguments.weights), held()
    deeds = trl(data, weights, arguments.micro) if arguments.micro else ours(data, weights)
    for line in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        norm = deeds[line.strip()]()
        answer = {
            "seconds": time.perf_counter() - wall,
            "processor_seconds": time.process_time() - processor,
            "norm": norm,
            "tokens": sum(len(item["tokens"]) for item in data),
            "bytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before,
        }
        print(json.dumps(answer), file=answers, flush=True)


class Contender:
    """A process that makes steps on demand; TRL's with a micro-batch, ours without."""

    def __init__(self, case: str, weights: str, share: float, micro: int = 0, sample: int = 0):
        command = [sys.executable, __file__, "--serve", case, "--weights", weights]
        command += ["--share", str(share), "--micro", str(micro), "--sample", str(sample)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait()

    def do(self, what: str) -> dict:
        """What it cost: 'warm_up', 'step', or 'outside', the part of ours that is not compiled."""
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(answer)


def best_micro_batch(case: str, weights: str, share: float) -> tuple[int, dict[int, float]]:
    """TRL's fastest, and the processor seconds of all, on a sample of the trajectories."""
    seconds = {}
    for micro in MICRO_BATCHES:
        with Contender(case, weights, share, micro, SAMPLED[case.split("_")[1]]) as contender:
            contender.do("step")  # meets its shapes
            seconds[micro] = contender.do("step")["processor_seconds"]
    return min(seconds, key=seconds.__getitem__), seconds


def compared(case: str, weights: str, share: float, repeats: int) -> dict:
    """The figures of a case."""
    micro, sampled = best_micro_batch(case, weights, share)
    with Contender(case, weights, share) as mine, Contender(case, weights, share, micro) as other:
        mine.do("warm_up"), other.do("warm_up")
        turns = [(mine.do("step"), other.do("step")) for _ in range(repeats)]
        outside = mine.do("outside")["processor_seconds"]
    ours, theirs = zip(*turns, strict=True)
    norms = ours[0]["norm"], theirs[0]["norm"]
    if not math.isclose(*norms, rel_tol=1e-3):
        raise SystemExit(f"{case}: gradient norms {norms} differ")
    about = figures.conditions(
        trl_micro_batch=micro,
        trl_sampled_processor_seconds=sampled,
        share_of_trajectories=share,
        tokens=ours[0]["tokens"],
        gradient_norms=norms,
        versions={name: version(name) for name in ("jax", "torch", "trl", "transformers")},
    )
    found = {}
    for name, key in ((case, "seconds"), (f"processor_{case}", "processor_seconds")):
        rates = [side[0]["tokens"] / min(turn[key] for turn in side) for side in (ours, theirs)]
        unit = f"tokens per {key.replace('_', ' ').removesuffix('s')}"
        found[name] = figures.rate(*rates, unit, about)
    memory = [side[-1]["bytes"] for side in (ours, theirs)]
    found[f"memory_{case}"] = figures.cost(*memory, "bytes", about)
    share_outside = outside / min(turn["processor_seconds"] for turn in ours)
    unit = "share of a step outside compiled programs; theirs is the goal"
    found[f"overhead_{case}"] = figures.cost(share_outside, 0.05, unit, about)
    return found


def main() -> None:
    """Prints the figures and writes them where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="file to write the figures to")
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES)
    parser.add_argument("--share", type=float, default=1.0, help="of the trajectories")
    parser.add_argument("--repeats", type=int, default=2, help="steps of each; the fastest counts")
    for name, kind in (("serve", str), ("weights", str), ("micro", int), ("sample", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments)
        return
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            weights = pathlib.Path(folder, size)
            cases = [case for case in arguments.cases if case.endswith(f"_{size}")]
            if cases:
                write_weights(size, weights)
            for case in cases:
                found |= compared(case, str(weights), arguments.share, arguments.repeats)
                print(f"{case}: {found[case]['ratio']:.2f} x TRL", file=sys.stderr)
                if arguments.json:  # after each case: an interrupted run leaves what it has
                    arguments.json.write_text(json.dumps(found))
    figures.write(found, arguments.json)


if __name__ == "__main__":
    main()

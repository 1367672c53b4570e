"""A whole run of a tiny model, as a program that ends itself at a chosen moment.

    python tests/tiny_run.py WORKDIR [--signal SIGKILL --phase play --iteration 1 --delay 0.3]
    python tests/tiny_run.py WORKDIR --coordinator=HOST:PORT --process=0  # the first of two
    python tests/tiny_run.py WORKDIR --devices 8 --set mesh.fsdp=8 learner.rows=8
    python tests/tiny_run.py WORKDIR --urls http://HOST:PORT,...    # sampled by SGLang servers

Everything is real (sandbox, checks, sampler, learner, checkpoints) but what no model this small can
do: the designer's programs are made up from the request's name, and a message that does not end is
ended. The games can be won by chance, so there is something to learn. ``--phase save`` is the
writing of the checkpoint that ends the iteration.
"""

import argparse
import ast
import asyncio
import dataclasses
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

import jax
from rich.console import Console

from spade_jax import config, policy, processes, train
from spade_jax.learner.checkpoint import Checkpoints
from spade_jax.learner.step import Learner
from spade_jax.models import loading
from spade_jax.progress import RunProgress
from spade_jax.sampling.interface import Completion
from spade_jax.sampling.native.sampler import NativeSampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.sampling.sglang import SGLangSampler

sys.path.insert(0, str(Path(__file__).parent))
import conftest

PROGRAM = '''```python
WORDS = "{words}"


class ResidueEnv:
    """Won by a message whose letters add up to the hidden residue."""

    def __init__(self, max_turns=2, **options):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        self.target = (seed or 0) * {factor} % 12
        self.turn = 0
        return "Say anything in {number} letters.", {{}}

    def step(self, action):
        self.turn += 1
        residue = sum(map(ord, action)) % 12
        done = self.turn == 2
        won = done and residue == self.target
        return f"Heard a tone of {{residue}}.", float(won), done, False, {{}}

    def solution(self):
        messages = ["\\\\boxed{{" + letter + "}}" for letter in "abcdefghijkl"]
        return [next(m for m in messages if sum(map(ord, m)) % 12 == self.target)] * 2
```'''


def settings(changes: Sequence[str] = (), urls: str = "") -> config.Config:
    """``changes`` are ``name=number``."""
    values = config.default_config()
    values.iterations = 3 if urls else 5
    values.model.architecture = {
        "model_type": "qwen3",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 8192,
        "initializer_range": 0.5,
        "tie_word_embeddings": True,
        "vocab_size": 259,
    }
    values.schedule.update(k=2, delay=2, slots=3, plain_plays=6, hinted_plays=3)
    values.schedule.update(skills=("Optimization",), active_skills=1)
    values.designer.update(prompts="small", max_tokens=2048, attempts=2)
    values.agent.update(max_tokens=4, max_turns=2, max_episode_tokens=1024, temperature=1.0)
    values.hints.max_tokens = 8
    values.corpus.max_tokens = 32
    values.sampler.update(slots=16, context=4096, cache_mb=16, prefill_chunk=512, decode_steps=4)
    if urls:
        values.sampler.update(kind="sglang", urls=urls)
    values.learner.update(learning_rate=1e-2, row_length=4096, rows=1, remat=False)
    values.checkpoint.update(every=1, keep=2, keep_every=0)
    for name, value in (change.split("=") for change in changes):
        values.update_from_flattened_dict({name: ast.literal_eval(value)})
    return config.from_config_dict(values)


class Helped:
    """A sampler, but that it writes programs and ends its messages."""

    renderer: Renderer

    async def generate(self, requests):
        if not any("/slot/" in request.uid for request in requests):
            return [self._ended(completion) for completion in await super().generate(requests)]
        return [self._program(request.uid) for request in requests]

    def _ended(self, completion):
        if completion.finish_reason == "stop":
            return completion
        return dataclasses.replace(
            completion,
            tokens=[*completion.tokens, self.renderer.reply("")[-1]],
            logp=[*completion.logp, -1.0],
            versions=[*completion.token_versions, completion.version],
            finish_reason="stop",
        )

    def _program(self, uid):
        rng = random.Random(uid)
        words = " ".join("".join(rng.choices("abcdefgh", k=5)) for _ in range(60))
        text = PROGRAM.format(
            words=words, factor=rng.choice([1, 5, 7, 11]), number=rng.randint(2, 9)
        )
        tokens = self.renderer.reply(text)
        return Completion(tokens, [-0.5] * len(tokens), "stop", 0)


class HelpedNative(Helped, NativeSampler):
    pass


class HelpedSGLang(Helped, SGLangSampler):
    pass


class Moment:
    """Ends the process ``delay`` seconds after a phase of an iteration has begun, or, if the phase
    is over sooner (it may have compiled nothing this time), as the next one begins."""

    def __init__(self, chosen):
        self.chosen = chosen
        self.iteration = 0
        self._armed = False
        self._over = threading.Event()

    def begins(self, phase):
        if self._armed:
            self._over.set()
        elif (phase, self.iteration) == (self.chosen.phase, self.chosen.iteration):
            self._armed = True
            threading.Thread(target=self._end, daemon=True).start()

    def _end(self):
        self._over.wait(self.chosen.delay)
        os.kill(os.getpid(), getattr(signal, self.chosen.signal))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workdir", type=Path)
    parser.add_argument("--signal", default="SIGKILL")
    parser.add_argument("--phase")
    parser.add_argument("--iteration", type=int)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--coordinator")
    parser.add_argument("--process", type=int)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--urls", default="")
    chosen = parser.parse_args()
    moment, workdir, changes = Moment(chosen), chosen.workdir, chosen.set
    jax.config.update("jax_num_cpu_devices", chosen.devices)
    if chosen.coordinator:
        processes.join(chosen.coordinator, 2, chosen.process)
        changes = ["mesh.fsdp=2", "learner.rows=2", *changes]  # rows, too, are spread over them
    jax.config.update("jax_compilation_cache_dir", str(workdir.parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

    class Progress(RunProgress):
        def phase(self, name, total):
            moment.begins(name)
            super().phase(name, total)

        def step(self, message):
            moment.iteration = self._done
            super().step(message)

    class Saving(Checkpoints):
        def save(self, step, arrays, data):
            moment.iteration = step - 1
            moment.begins("save")
            super().save(step, arrays, data)
            moment.iteration = step

    class Learning(Learner):
        """Where iterations overlap, the bar shows what is sampled."""

        def update(self, trajectories):
            if "next_iteration" in str(changes):
                moment.begins("learn")
            return super().update(trajectories)

    tokenizer = conftest.make_byte_tokenizer()
    Helped.renderer = Renderer(tokenizer)

    async def prepare(wanted, workdir, progress, mesh, exchange):
        return loading.load(wanted.model, wanted.seed, mesh)[0], tokenizer

    policy.prepare = prepare
    train.NativeSampler, train.SGLangSampler = HelpedNative, HelpedSGLang
    train.RunProgress = Progress
    train.Checkpoints, train.Learner = Saving, Learning
    try:
        asyncio.run(train.train(settings(changes, chosen.urls), workdir, Console(width=200)))
    except Exception:
        traceback.print_exc()
        processes.end(1)


if __name__ == "__main__":
    main()

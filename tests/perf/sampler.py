"""The native sampler beside transformers' batched ``generate``: same weights, one run, float32.

    python tests/perf/sampler.py --json sampler.json

On a mixture of experts from scratch of about 11M parameters. Both sides run every workload once to
warm up and are then timed. ``--share 0.1`` makes everything smaller, to see that it runs.
"""

import argparse
import asyncio
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
import transformers

from spade_jax import config
from spade_jax.models import huggingface
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.sampler import NativeSampler

MOE = {
    "model_type": "qwen3_moe",
    "vocab_size": 4096,
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "intermediate_size": 512,
    "moe_intermediate_size": 256,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
    "initializer_range": 0.06,
}
OBSERVATION = 40  # tokens
RNG = np.random.default_rng(0)


def tokens(count: int, length: int) -> np.ndarray:
    """Random prompts [count, length]."""
    return RNG.integers(0, MOE["vocab_size"], (count, length))


class Ours:
    """The native sampler."""

    def __init__(self, folder: str, slots: int):
        settings = config.Sampler(slots=slots, context=2048, cache_mb=2048)
        model = huggingface.load(folder, config.Model(experts="blocks"))
        self._sampler, self._calls = NativeSampler(model, settings, 0), 0

    def independent(self, prompts: np.ndarray, samples: int, new: int) -> None:
        """``samples`` of every prompt."""
        self._calls += 1
        requests = [
            Request(prompt.tolist(), SamplingParams(new), f"{self._calls}/{i}/{n}")
            for i, prompt in enumerate(prompts)
            for n in range(samples)
        ]
        asyncio.run(self._sampler.generate(requests))

    def turns(self, prompts: np.ndarray, lengths: np.ndarray, seen: np.ndarray) -> None:
        """Episodes, each at its own pace."""
        self._calls += 1
        call = self._calls

        async def episode(index: int) -> None:
            so_far, session = prompts[index].tolist(), f"{call}/{index}"
            for turn, length in enumerate(lengths[index]):
                params = SamplingParams(int(length))
                request = Request(so_far, params, f"{session}/{turn}", session)
                (completion,) = await self._sampler.generate([request])
                so_far = so_far + completion.tokens + seen[index, turn].tolist()
            self._sampler.release(session)

        async def episodes() -> None:
            await asyncio.gather(*(episode(index) for index in range(len(prompts))))

        asyncio.run(episodes())


class Theirs:
    """Transformers: one batch, keys and values kept between turns."""

    def __init__(self, model: transformers.PreTrainedModel):
        self._model = model

    def _generate(self, ids: torch.Tensor, mask: torch.Tensor, new: int, cache=None):
        with torch.no_grad():
            return self._model.generate(
                ids,
                attention_mask=mask,
                past_key_values=cache,
                do_sample=True,
                top_k=0,
                max_new_tokens=new,
                eos_token_id=None,
                pad_token_id=0,
                return_dict_in_generate=True,
            )

    def independent(self, prompts: np.ndarray, samples: int, new: int) -> None:
        """As :meth:`Ours.independent`."""
        ids = torch.tensor(prompts.repeat(samples, axis=0))
        self._generate(ids, torch.ones_like(ids), new)

    def turns(self, prompts: np.ndarray, lengths: np.ndarray, seen: np.ndarray) -> None:
        """All episodes in step: a turn takes as long as its longest reply, the rest is masked."""
        ids = torch.tensor(prompts)
        mask, cache = torch.ones_like(ids), transformers.DynamicCache(config=self._model.config)
        for turn in range(lengths.shape[1]):
            new = int(lengths[:, turn].max())
            drawn = self._generate(ids, mask, new, cache)
            cache = drawn.past_key_values
            real = torch.arange(new) < torch.tensor(lengths[:, turn])[:, None]
            observation = torch.tensor(seen[:, turn])
            ids = torch.cat([drawn.sequences, observation], 1)
            mask = torch.cat([mask, real.long(), torch.ones_like(observation)], 1)


def seconds(work: Callable[[Ours | Theirs], None], side: Ours | Theirs) -> float:
    """Of a second run; the first compiles."""
    work(side)
    start = time.perf_counter()
    work(side)
    return time.perf_counter() - start


def compare(ours: Ours, theirs: Theirs, share: float) -> dict[str, dict]:
    """Tokens a second of both, by workload."""

    def some(count: int) -> int:
        return max(2, round(count * share))

    groups, long = tokens(some(16), some(200)), tokens(1, some(1024))
    episodes = some(64)
    lengths = RNG.integers(8, 65, (episodes, 5))
    seen = tokens(episodes * 5, OBSERVATION).reshape(episodes, 5, OBSERVATION)
    start = tokens(episodes, some(200))
    samples = some(16)
    workloads = {
        "groups": (
            groups.shape[0] * samples * 64,
            lambda side: side.independent(groups, samples, 64),
        ),
        "multi_turn": (int(lengths.sum()), lambda side: side.turns(start, lengths, seen)),
        "one_prompt": (some(32) * 64, lambda side: side.independent(long, some(32), 64)),
    }
    figures = {}
    for name, (count, work) in workloads.items():
        conditions = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
        mine, other = (count / seconds(work, side) for side in (ours, theirs))
        figures[f"{name}_vs_transformers_10m_float32"] = {
            "ours": mine,
            "theirs": other,
            "ratio": mine / other,
            "unit": "tokens/s",
            "conditions": conditions | {"tokens": count},
        }
    return figures


def main() -> None:
    """Prints the figures and writes them where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--share", type=float, default=1.0, help="of the work")
    parser.add_argument("--slots", type=int, default=256, help="sequences decoded together")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    settings = transformers.AutoConfig.for_model(**MOE)
    model = transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.float32).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        figures = compare(Ours(folder, arguments.slots), Theirs(model), arguments.share)
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(text + "\n")


if __name__ == "__main__":
    main()

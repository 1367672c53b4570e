"""The native sampler beside transformers and a real SGLang server, in one run, in float32.

    python tests/perf/sampler.py --json sampler.json           # beside transformers
    python tests/perf/sampler.py --sglang --json sampler.json  # beside both; installs SGLang once

Same weights, on a mixture of experts from scratch of about 11M parameters (``10m``) and on
SmolLM2-135M (``135m``). All sides run every workload once to warm up and are then timed, one after
another. ``--share 0.1`` makes everything smaller, to see that it runs. Of transformers both ways
are timed, one batch of ``generate`` whose keys and values are kept, and continuous batching; a
figure is against the faster, which its conditions name beside both rates. SGLang is the stock
server of tests/README.md with the CPU's native attention.
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import json
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import figures
import numpy as np
import torch
import transformers
from flax import nnx

from spade_jax import config
from spade_jax.models import huggingface, loading
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native import memory
from spade_jax.sampling.native.sampler import NativeSampler

sys.path.append(str(pathlib.Path(__file__).parents[1] / "sampling"))
import real_sglang

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
    "tie_word_embeddings": False,  # SGLang does not tie the head of this family
    "max_position_embeddings": 4096,
    "initializer_range": 0.06,
}
SIZES = ("10m", "135m")
OBSERVATION = 40  # tokens
CONTEXT = 2048
IN_FLIGHT = 256
CACHED = 81920  # tokens that the others' caches hold
RNG = np.random.default_rng(0)


class Side(Protocol):
    """What is timed."""

    def independent(self, prompts: np.ndarray, samples: int, new: int) -> None:
        """``samples`` of every prompt."""

    def turns(self, prompts: np.ndarray, lengths: np.ndarray, seen: np.ndarray) -> None:
        """Episodes: replies of ``lengths`` [episode, turn] tokens, each followed by ``seen``."""


class Ours:
    """The native sampler."""

    def __init__(self, folder: str):
        settings = config.Sampler(slots=IN_FLIGHT, context=CONTEXT, cache_mb=3072)
        model = huggingface.load(folder, config.Model(experts="blocks"))
        self.architecture, self._calls = model.config, 0
        self._sampler = NativeSampler(model, settings, 0)

    def independent(self, prompts: np.ndarray, samples: int, new: int) -> None:
        self._calls += 1
        requests = [
            Request(prompt.tolist(), SamplingParams(new), f"{self._calls}/{i}/{n}")
            for i, prompt in enumerate(prompts)
            for n in range(samples)
        ]
        asyncio.run(self._sampler.generate(requests))

    def turns(self, prompts: np.ndarray, lengths: np.ndarray, seen: np.ndarray) -> None:
        """Each at its own pace."""
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


def their_model(folder: str) -> Any:
    """Of transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


class Batched:
    """transformers' ``generate``: one batch, keys and values kept between turns."""

    def __init__(self, folder: str):
        self._model = their_model(folder)

    def _generate(self, ids: torch.Tensor, mask: torch.Tensor, new: int, cache: Any = None) -> Any:
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
        ids = torch.tensor(prompts.repeat(samples, axis=0))
        self._generate(ids, torch.ones_like(ids), new)

    def turns(self, prompts: np.ndarray, lengths: np.ndarray, seen: np.ndarray) -> None:
        """All in step: a turn takes as long as its longest reply, the rest is masked."""
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


class Continuous:
    """transformers' continuous batching: blocks of keys and values, shared by equal beginnings."""

    def __init__(self, folder: str):
        self._model = their_model(folder)

    @contextlib.contextmanager
    def _running(self) -> Iterator[Any]:
        """Its manager, whose thread would take time from other sides were it left alive."""
        manager = self._model.init_continuous_batching(
            transformers.GenerationConfig(
                do_sample=True, top_k=0, max_new_tokens=CONTEXT, eos_token_id=-1, pad_token_id=0
            ),
            transformers.ContinuousBatchingConfig(
                page_size=16,
                num_blocks=CACHED // 16,
                max_batch_tokens=1024,
                max_requests_per_batch=IN_FLIGHT,
            ),
        )
        manager.start()
        try:
            yield manager
        finally:
            manager.stop(block=True)

    def _ended(self, manager: Any) -> Any:
        """The next completion."""
        while (result := manager.get_result(timeout=1)) is None or not result.is_finished():
            if not manager.is_running():
                raise RuntimeError("transformers' continuous batching has stopped")
        if result.error is not None:
            raise RuntimeError(f"transformers' continuous batching: {result.error}")
        return result

    def independent(self, prompts: np.ndarray, samples: int, new: int) -> None:
        each = [prompt.tolist() for prompt in prompts for _ in range(samples)]
        with self._running() as manager:
            manager.add_requests(each, max_new_tokens=new)
            for _ in each:
                drawn = len(self._ended(manager).generated_tokens)
                if drawn != new:
                    raise RuntimeError(f"transformers drew {drawn} tokens for {new}")

    def turns(self, prompts: np.ndarray, lengths: np.ndarray, seen: np.ndarray) -> None:
        """Each at its own pace."""
        under_way: dict[str | None, tuple[int, int]] = {}

        def ask(manager: Any, index: int, turn: int, tokens: list[int]) -> None:
            new = int(lengths[index, turn])
            asked = manager.add_request(tokens, max_new_tokens=new, eos_token_id=-1)
            under_way[asked] = index, turn

        with self._running() as manager:
            for index, prompt in enumerate(prompts):
                ask(manager, index, 0, prompt.tolist())
            while under_way:
                result = self._ended(manager)
                index, turn = under_way.pop(result.request_id)
                so_far = result.prompt_ids + result.generated_tokens + seen[index, turn].tolist()
                if turn + 1 < lengths.shape[1]:
                    ask(manager, index, turn + 1, so_far)


class SGLang:
    """Requests of one token list each, as many at once as there are; its prefix cache is on."""

    def __init__(self, folder: str, log: pathlib.Path):
        flags = ("--skip-tokenizer-init", "--max-total-tokens", CACHED)
        flags += ("--max-running-requests", IN_FLIGHT)
        self._server = real_sglang.RealSGLang(folder, log, flags, threads=torch.get_num_threads())
        self._threads = concurrent.futures.ThreadPoolExecutor(IN_FLIGHT)

    def close(self) -> None:
        self._threads.shutdown()
        self._server.kill()

    def _drawn(self, tokens: list[int], new: int) -> list[int]:
        params = {"max_new_tokens": new, "temperature": 1.0, "ignore_eos": True}
        body = {"input_ids": tokens, "sampling_params": params, "return_logprob": True}
        status, answer = real_sglang.call(self._server.url, "/generate", body)
        if status != 200 or len(answer["output_ids"]) != new:
            raise RuntimeError(f"SGLang answered {status}: {str(answer)[:300]}")
        return answer["output_ids"]

    def independent(self, prompts: np.ndarray, samples: int, new: int) -> None:
        each = [prompt.tolist() for prompt in prompts for _ in range(samples)]
        list(self._threads.map(lambda tokens: self._drawn(tokens, new), each))

    def turns(self, prompts: np.ndarray, lengths: np.ndarray, seen: np.ndarray) -> None:
        def episode(index: int) -> None:
            so_far = prompts[index].tolist()
            for turn, length in enumerate(lengths[index]):
                drawn = self._drawn(so_far, int(length))
                so_far = so_far + drawn + seen[index, turn].tolist()

        list(self._threads.map(episode, range(len(prompts))))


class Workload:
    """Tokens to draw, and how.

    Attributes:
      tokens: drawn in all.
      in_flight: sequences at one time.
      cached: tokens of a sequence, on average while it is drawn.
    """

    def __init__(self, tokens: int, in_flight: int, cached: float, run: Callable[[Side], None]):
        self.tokens, self.in_flight, self.cached, self._run = tokens, in_flight, cached, run

    def rate(self, side: Side) -> float:
        """Tokens a second of a second run; the first compiles."""
        self._run(side)
        start = time.perf_counter()
        self._run(side)
        return self.tokens / (time.perf_counter() - start)


def drawn(vocabulary: int, count: int, length: int) -> np.ndarray:
    """Random prompts [count, length]."""
    return RNG.integers(0, vocabulary, (count, length))


def episodes(vocabulary: int, count: int, prompt: int) -> Workload:
    """Five turns with observations, replies of 8 to 64 tokens."""
    lengths = RNG.integers(8, 65, (count, 5))
    seen = drawn(vocabulary, count * 5, OBSERVATION).reshape(count, 5, OBSERVATION)
    start = drawn(vocabulary, count, prompt)
    cached = prompt + 2.5 * (36 + OBSERVATION)
    return Workload(
        int(lengths.sum()), count, cached, lambda side: side.turns(start, lengths, seen)
    )


def workloads(vocabulary: int, share: float) -> Iterator[tuple[str, Workload]]:
    """``groups``, ``multi_turn`` and ``one_prompt``."""

    def some(count: int) -> int:
        return max(2, round(count * share))

    groups, long = drawn(vocabulary, some(16), some(200)), drawn(vocabulary, 1, some(1024))
    samples, many = some(16), some(32)
    count = len(groups) * samples
    yield (
        "groups",
        Workload(
            count * 64, count, some(200) + 32, lambda side: side.independent(groups, samples, 64)
        ),
    )
    yield "multi_turn", episodes(vocabulary, some(64), some(200))
    yield (
        "one_prompt",
        Workload(many * 64, many, some(1024) + 32, lambda side: side.independent(long, many, 64)),
    )


def bandwidth() -> float:
    """Bytes a second that all cores read from memory."""
    x = torch.ones(64 * 2**20)
    x.sum()
    start = time.perf_counter()
    for _ in range(4):
        x.sum()
    return 4 * x.nbytes / (time.perf_counter() - start)


def write_weights(size: str, folder: str) -> None:
    """In Hugging Face format."""
    if size == "135m":
        model, tokenizer = loading.load(config.Model(source="smollm2"), 0)
        huggingface.save(folder, model.config, nnx.state(model), tokenizer, "float32")
        return
    torch.manual_seed(0)
    settings = transformers.AutoConfig.for_model(**MOE)
    transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.float32).save_pretrained(
        folder
    )


def compare(size: str, share: float, sglang: bool) -> Iterator[tuple[str, dict]]:
    """Figures of one model."""
    with tempfile.TemporaryDirectory() as place:
        folder = f"{place}/weights"
        write_weights(size, folder)
        ours = Ours(folder)
        with contextlib.ExitStack() as stack:
            ways: dict[str, Side] = {"generate": Batched(folder)}
            ways["continuous batching"] = Continuous(folder)
            sides = {"transformers": ways}
            if sglang:
                server = SGLang(folder, pathlib.Path(place, "log"))
                stack.callback(server.close)
                sides["sglang"] = {"server": server}
            yield from _figures(size, share, ours, sides)


def _figures(
    size: str, share: float, ours: Ours, sides: dict[str, dict[str, Side]]
) -> Iterator[tuple[str, dict]]:
    vocabulary, settings = ours.architecture.vocabulary, config.Config()
    reads, held = bandwidth(), memory.sampler_bytes(ours.architecture, settings)
    token = memory.token_bytes(ours.architecture, settings)
    for name, work in workloads(vocabulary, share):
        mine = work.rate(ours)
        facts = {"tokens": work.tokens, "in_flight": work.in_flight, "share": share}
        for side, ways in sides.items():
            rates = {way: work.rate(them) for way, them in ways.items()}
            best = max(rates, key=rates.__getitem__)
            rounded = {way: float(f"{rate:.4g}") for way, rate in rates.items()}
            facts_of = figures.conditions(**facts, beside=best, tokens_per_second=rounded)
            figure = figures.rate(mine, rates[best], "tokens/s", facts_of)
            yield f"{name}_vs_{side}_{size}_float32", figure
        step = held["weights"] + work.in_flight * work.cached * token
        ceiling = work.in_flight * reads / step
        facts |= {"gigabytes_per_second": round(reads / 1e9, 1)}
        figure = figures.rate(mine, ceiling, "tokens/s", figures.conditions(**facts))
        yield f"report_{name}_vs_bandwidth_{size}_float32", figure
    counts, prompt = [max(16, round(IN_FLIGHT * share)), 8], max(2, round(200 * share))
    costs = [1 / episodes(vocabulary, count, prompt).rate(ours) for count in counts]
    facts = {"in_flight": counts, "share": share}
    figure = figures.cost(*costs, "s/token", figures.conditions(**facts))
    yield f"multi_turn_many_vs_few_in_flight_{size}_float32", figure


def main() -> None:
    """Prints the figures and writes them where asked, after each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="file to write the figures to")
    parser.add_argument("--share", type=float, default=1.0, help="of the work")
    parser.add_argument("--sizes", nargs="+", default=SIZES, choices=SIZES)
    parser.add_argument("--sglang", action="store_true", help="beside a real SGLang server too")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without the server
    made: dict[str, dict] = {}
    for size in arguments.sizes:
        for name, figure in compare(size, arguments.share, arguments.sglang):
            made[name] = figure
            print(f"{name}: {figure['ratio']}", file=sys.stderr, flush=True)
            if arguments.json:  # an interrupted run leaves what it has
                arguments.json.write_text(json.dumps(made, indent=2) + "\n")
    figures.write(made, arguments.json)


if __name__ == "__main__":
    main()

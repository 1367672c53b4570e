"""Greedy decoding against transformers (torch, float32), by way of a saved checkpoint."""

import asyncio

import pytest
import torch
import transformers

from spade_jax import config
from spade_jax.models import huggingface
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.sampler import NativeSampler
from tests.sampling.native.test_sampler import DENSE, prompt

torch.set_num_threads(1)

SETTINGS = config.Sampler(slots=4, context=256, cache_mb=1, prefill_chunk=32, decode_steps=4)
MOE = DENSE | {
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 24,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "tie_word_embeddings": True,
}
LLAMA = DENSE | {"model_type": "llama", "tie_word_embeddings": True}


def reference(values, folder):
    """A random transformers model and the engine on the same weights, by way of a checkpoint."""
    torch.manual_seed(0)
    oracle = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**values), dtype=torch.float32
    ).eval()
    oracle.save_pretrained(folder)
    model = huggingface.load(folder, config.Model())
    return oracle, NativeSampler(model, SETTINGS, 7)


@pytest.mark.parametrize("values", [DENSE, MOE, LLAMA], ids=lambda v: v["model_type"])
def test_greedy_is_transformers_greedy(values, tmp_path):
    oracle, sampler = reference(values, tmp_path)
    prompts = [prompt(length, length) for length in (1, 2, 31, 33, 34, 70, 230, 231)]
    requests = [Request(p, SamplingParams(20, temperature=0.0), str(len(p))) for p in prompts]
    completions = asyncio.run(sampler.generate(requests))
    for tokens, completion in zip(prompts, completions, strict=True):
        ids = torch.tensor([tokens])
        with torch.no_grad():
            expected = oracle.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=20,
                eos_token_id=None,
                pad_token_id=0,
            )
        assert completion.tokens == expected[0, len(tokens) :].tolist()
        assert completion.finish_reason == "length"

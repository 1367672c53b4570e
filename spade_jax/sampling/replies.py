"""The body of ``POST /generate`` of an SGLang server, and what it answers, checked."""

import dataclasses
import hashlib
import math
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax.sampling.interface import SamplingParams


class ServerFault(Exception):
    """A server did not do what was asked of it.

    Attributes:
      kind: name under which it is counted.
      fatal: whether asking again, here or elsewhere, cannot help.
    """

    def __init__(self, kind: str, reason: str, fatal: bool = False):
        super().__init__(f"{kind}: {reason}")
        self.kind, self.fatal = kind, fatal


@dataclasses.dataclass(frozen=True)
class Reply:
    """A checked reply, possibly partial.

    Attributes:
      tokens, logp: sampled ids and their float32 log-probs.
      labels: label of the weights that sampled each token.
      finish: 'stop' (at whatever token), 'length' or 'abort'.
      prompt_tokens, cached_tokens: length of the prompt, and what of it was in the prefix cache.
    """

    tokens: list[int]
    logp: list[float]
    labels: list[str]
    finish: typing.Literal["stop", "length", "abort"]
    prompt_tokens: int
    cached_tokens: int


def body(
    tokens: Sequence[int], params: SamplingParams, max_tokens: int, rid: str, seed: int
) -> dict[str, Any]:
    """Every parameter is sent: a server may have been started with preferences of its own.

    ``ignore_eos`` also silences ``stop_token_ids``, so it is set only where nothing shall stop.
    """
    sampling = {
        "max_new_tokens": max_tokens,
        "min_new_tokens": 0,
        "n": 1,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k or -1,
        "min_p": params.min_p,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop": [],
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": not params.stop_ids,
        "no_stop_trim": True,
        "skip_special_tokens": False,
        "sampling_seed": seed,
    }
    return {
        "input_ids": list(tokens),
        "sampling_params": sampling,
        "return_logprob": True,
        "logprob_start_len": -1,
        "top_logprobs_num": 0,
        "return_text_in_logprobs": False,
        "stream": False,
        "rid": rid,
    }


def seed_of(seed: int, uid: str) -> int:
    """Seed of a completion, below 2**62. Servers heed it if started as deterministic."""
    digest = hashlib.sha256(f"{seed}/{uid}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


def read(payload: Any, rid: str, max_tokens: int, vocabulary: int) -> Reply:
    """The reply to the request ``rid``.

    Ids are those of ``output_token_logprobs``: texts, and in some versions ``output_ids``, differ.

    Raises:
      ServerFault: 'duplicate' (it answers another request), or 'fields' (something is missing or
        impossible).
    """
    if not isinstance(payload, Mapping):
        raise ServerFault("fields", f"a reply of type {type(payload).__name__}")
    try:
        meta = payload["meta_info"]
        if meta["id"] != rid:
            raise ServerFault("duplicate", f"the reply to {meta['id']!r} came for {rid!r}")
        finish = meta["finish_reason"]["type"]
        # Aborted while queued, a request has no counts and may have no log-probs.
        aborted = finish == "abort"
        pairs = meta.get("output_token_logprobs") or [] if aborted else _pairs(meta)
        tokens = [token for _, token, *_ in pairs]
        logp = [value for value, *_ in pairs]
        prompt, cached = (
            int(meta.get(name) or 0 if aborted else meta[name])
            for name in ("prompt_tokens", "cached_tokens")
        )
        labels = _labels(meta, len(tokens))
    except (LookupError, TypeError, ValueError) as error:
        raise ServerFault("fields", f"{type(error).__name__}: {error}") from error
    if finish not in ("stop", "length", "abort"):
        raise ServerFault("fields", f"finish_reason {finish!r}")
    if len(tokens) > max_tokens or (finish == "length" and len(tokens) != max_tokens):
        raise ServerFault("fields", f"{len(tokens)} tokens for max_new_tokens={max_tokens}")
    if finish == "stop" and not tokens:
        raise ServerFault("fields", "stopped without a token")
    if not all(type(token) is int and 0 <= token < vocabulary for token in tokens):
        raise ServerFault("fields", f"sampled ids outside the vocabulary of {vocabulary}")
    if not all(isinstance(v, int | float) and math.isfinite(v) and v <= 1e-3 for v in logp):
        raise ServerFault("fields", "log-probs that are not finite numbers below 0")
    return Reply(tokens, logp, labels, finish, prompt, cached)


def _pairs(meta: Mapping[str, Any]) -> list[Sequence[Any]]:
    pairs = meta["output_token_logprobs"]
    if len(pairs) != meta["completion_tokens"]:
        raise ValueError(f"{len(pairs)} log-probs of {meta['completion_tokens']} tokens")
    return list(pairs)


def _labels(meta: Mapping[str, Any], count: int) -> list[str]:
    """A label for each token, from the spans (0.5.19 and later) or the one of the reply."""
    if not count:
        return []
    spans = meta.get("weight_versions")
    if not spans:
        return [meta["weight_version"]] * count
    labels = [span["version"] for span in spans for _ in range(span["start"], span["end"])]
    if len(labels) != count:
        raise ValueError(f"weight_versions cover {len(labels)} of {count} tokens")
    return labels

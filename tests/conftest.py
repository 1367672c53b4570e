"""Shared by all tests: a small tokenizer and a sampler that says what it is told."""

import contextlib

import hypothesis
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from spade_jax.sampling.interface import Completion
from spade_jax.sampling.rendering import Renderer

# How long an example takes says something of the machine, nothing of the code.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, plus ChatML's control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHATML
    return tokenizer


@pytest.fixture(scope="session")
def byte_tokenizer() -> PreTrainedTokenizerFast:
    return make_byte_tokenizer()


@pytest.fixture(scope="session")
def renderer(byte_tokenizer) -> Renderer:
    return Renderer(byte_tokenizer)


class ScriptedSampler:
    """Answers each request with ``write(request, prompt text)``; log-prob -0.5 a token.

    A tuple (text, finish reason) cuts or refuses the reply.
    """

    def __init__(self, renderer, write):
        self.renderer = renderer
        self.write = write
        self.version = 0
        self.requests = []
        self.released = []

    async def generate(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        self.requests.append(request)
        written = self.write(request, self.renderer.decode(request.tokens))
        text, reason = written if isinstance(written, tuple) else (written, "stop")
        if reason == "refused":
            return Completion([], [], "refused", self.version, text)
        tokens = self.renderer.reply(text) if reason == "stop" else self.renderer.text(text)
        return Completion(tokens, [-0.5] * len(tokens), reason, self.version)

    @contextlib.asynccontextmanager
    async def party(self):
        yield

    def release(self, session):
        self.released.append(session)

    def update(self, params, version):
        self.version = version


@pytest.fixture(scope="session")
def scripted():
    return ScriptedSampler

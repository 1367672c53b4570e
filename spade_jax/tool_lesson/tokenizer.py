"""The tokenizer of the tools lesson: that of games, but for what stands alone, and with tools.

A list (tasks, ways, places), a way or a place, and what is still to be done are the same token in a
program, in a schema, in what a desk says and in a call. The chat template shows the
tools first, as JSON.
"""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from spade_jax.warm_start.tokenizer import ASSISTANT, CHAT_TEMPLATE, END, PAD, SYSTEM, USER

TOOL = "<|tool|>"
TEMPLATE = (
    "{% if tools %}{{ '<|system|>' + tools | tojson + '<|end|>' }}{% endif %}" + CHAT_TEMPLATE
)

PENDING = r"(?<=: )\w+(?=\n|\z)"
"""What is still to be done: the last word of what a desk says."""
ANSWER = r"\A\w+(?=, )"
"""What a call has brought, before that."""
LIST = r"\[\"[^\]\n]*\", \"[^\]\n]*\"\]"
"""Two words or more."""
QUOTED = r"(?<=')[^'\n]*(?=')"
"""What stands in single quotes: a title, the place that a desk keeps secret."""
ARGUMENT = r"(?<=\"place\": \"|\"way\": \")[^\"\n]*(?=\")"
SIZE = r"(?<=\"left\": )[0-9]|(?<=\[:)[0-9](?=\]\n)"
WHOLE = (PENDING, ANSWER, SIZE, LIST, QUOTED, ARGUMENT)
"""Texts whose tokens never reach beyond them. The first two must see where a message ends."""


def train(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most ``vocabulary`` tokens; equal texts give an equal tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in WHOLE),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, USER, ASSISTANT, SYSTEM, TOOL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[USER, ASSISTANT, SYSTEM, TOOL],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1 << 20,
    )

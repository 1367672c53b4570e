"""A byte-level BPE tokenizer in which lines that recur together are one token.

A model of a few million parameters pays for every token, and learns most from those that are a
decision. Programs share most of their lines, so merges may span words and lines. Digits stand
alone, so numbers can be varied and computed with; text in single quotes stands alone, so a title
can be copied. The chat template spends two tokens a message.
"""

from collections.abc import Iterable

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

USER, ASSISTANT, SYSTEM = "<|user|>", "<|assistant|>", "<|system|>"
END, PAD = "<|end|>", "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

VARIED_DIGIT = r"(?<=max_turns=|goal = |lives = )[0-9]|[0-9](?= of | in a row| lives)"
"""A digit of a game's size or state."""
QUOTED = r"(?<=')[^'\n]*(?=')"
"""What stands in single quotes: a title, the rule of a game."""
ENTRY = r"^ +\"[^\"\n]*\": \"[^\"\n]*\",\n"
"""A line of a game's table."""
ACTION = r"(?<=\\boxed\{)not (?=[^}\"\n]*\})|(?<=\\boxed\{|\\boxed\{not )[^}\"\n]*(?=\})"
"""What a player does, and its negation."""
SITUATION = r"(?<=, )[^,\n\"(){}]+(?=\n|\z)"
"""What the last line of an observation ends in: what a player has to answer."""
WHOLE = (ENTRY, QUOTED, ACTION, SITUATION, VARIED_DIGIT)
"""Texts whose tokens never reach beyond them, so that they are the same wherever they stand."""

SMALLEST = 256 + 5
"""The bytes and the special tokens: with these any text can be encoded."""


def train(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most ``vocabulary`` tokens; equal texts give an equal tokenizer.

    Raises:
      ValueError: ``vocabulary`` is smaller than :data:`SMALLEST`.
    """
    if vocabulary < SMALLEST:
        raise ValueError(
            f"warm_start.vocabulary = {vocabulary} cannot hold the 256 bytes and 5 special "
            f"tokens; raise it to {SMALLEST} or, for lines to become tokens, to 1024 or more"
        )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in WHOLE),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, USER, ASSISTANT, SYSTEM],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[USER, ASSISTANT, SYSTEM],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1 << 20,
    )

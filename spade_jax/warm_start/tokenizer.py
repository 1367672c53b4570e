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

VARIED_DIGIT = r"(?<!score = )(?<!max_turns \+ )(?<!\+= )[0-9](?!, (?:True|False))"
"""A digit, save those of counters and rewards, which are the same in every program."""

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
            pre_tokenizers.Split(Regex(r"(?<=')[^'\n]*(?=')"), "isolated"),
            pre_tokenizers.Split(Regex(VARIED_DIGIT), "isolated"),
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

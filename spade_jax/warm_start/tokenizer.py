"""A byte-level BPE tokenizer in which a line that recurs is one token.

A model of a few million parameters pays for every token. Programs share most of their lines, so
text is cut at line ends only, and merges may span words. Digits stand alone, so numbers can be
varied and computed with; text in single quotes stands alone, so a title can be copied.
"""

from collections.abc import Iterable

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

SMALLEST = 256 + 3
"""The bytes and the special tokens: with these any text can be encoded."""


def train(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A ChatML tokenizer of at most ``vocabulary`` tokens; equal texts give an equal tokenizer.

    Raises:
      ValueError: ``vocabulary`` is smaller than :data:`SMALLEST`.
    """
    if vocabulary < SMALLEST:
        raise ValueError(
            f"warm_start.vocabulary = {vocabulary} cannot hold the 256 bytes and 3 special "
            f"tokens; raise it to {SMALLEST} or, for lines to become tokens, to 1024 or more"
        )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[^\n]*\n+"), "isolated"),
            pre_tokenizers.Split(Regex(r"(?<=')[^'\n]*(?=')"), "isolated"),
            pre_tokenizers.Split(Regex(r"[0-9]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens={"start_of_turn_token": START},
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1 << 20,
    )

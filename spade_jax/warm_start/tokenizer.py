"""A byte-level BPE tokenizer in which lines that recur together are one token.

A model of a few million parameters pays for every token, and learns most from those that are a
decision. Programs share most of their lines, so merges may span words and lines. Digits stand
alone, so numbers can be varied and computed with; text in single quotes stands alone, so a title
can be copied. The chat template spends two tokens a message; where tools are offered, it shows them
first, as JSON.
"""

import dataclasses
from collections.abc import Iterable

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

USER, ASSISTANT, SYSTEM, TOOL = "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"
END, PAD = "<|end|>", "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

QUOTED = r"(?<=')[^'\n]*(?=')"
"""What stands in single quotes: a title, the rule of a game, the place that a desk keeps secret."""


@dataclasses.dataclass(frozen=True)
class Format:
    """What the tokenizers of two lessons differ in.

    Attributes:
      whole: expressions for texts whose tokens never reach beyond them, so that they are the same
        wherever they stand. Earlier ones see where a message ends.
      roles: tokens that a message begins with.
      template: the chat template.
    """

    whole: tuple[str, ...]
    roles: tuple[str, ...]
    template: str


VARIED_DIGIT = r"(?<=max_turns=|goal = |lives = )[0-9]|[0-9](?= of | in a row| lives)"
"""A digit of a game's size or state."""
ENTRY = r"^ +\"[^\"\n]*\": \"[^\"\n]*\",\n"
"""A line of a game's table."""
ACTION = r"(?<=\\boxed\{)not (?=[^}\"\n]*\})|(?<=\\boxed\{|\\boxed\{not )[^}\"\n]*(?=\})"
"""What a player does, and its negation."""
SITUATION = r"(?<=, )[^,\n\"(){}]+(?=\n|\z)"
"""What the last line of an observation ends in: what a player has to answer."""
GAMES = Format(
    (ENTRY, QUOTED, ACTION, SITUATION, VARIED_DIGIT), (USER, ASSISTANT, SYSTEM), CHAT_TEMPLATE
)

PENDING = r"(?<=: )\w+(?=\n|\z)"
"""What is still to be done: the last word of what a desk says."""
ANSWER = r"\A\w+(?=, )"
"""What a call has brought, before that."""
LIST = r"\[\"[^\]\n]*\", \"[^\]\n]*\"\]"
"""Two words or more: tasks, ways, places. The same in a program, a schema and a call."""
ARGUMENT = r"(?<=\"place\": \"|\"way\": \")[^\"\n]*(?=\")"
SIZE = r"(?<=\"left\": )[0-9]|(?<=\[:)[0-9](?=\]\n)"
TOOLS = Format(
    (PENDING, ANSWER, SIZE, LIST, QUOTED, ARGUMENT),
    (USER, ASSISTANT, SYSTEM, TOOL),
    "{% if tools %}{{ '<|system|>' + tools | tojson + '<|end|>' }}{% endif %}" + CHAT_TEMPLATE,
)


def train(texts: Iterable[str], vocabulary: int, format_: Format) -> PreTrainedTokenizerFast:
    """A tokenizer of at most ``vocabulary`` tokens; equal texts give an equal tokenizer.

    Raises:
      ValueError: ``vocabulary`` cannot hold the bytes and the special tokens, with which any text
        can be encoded.
    """
    special = [PAD, END, *format_.roles]
    if vocabulary < 256 + len(special):
        raise ValueError(
            f"warm_start.vocabulary = {vocabulary} cannot hold the 256 bytes and {len(special)} "
            f"special tokens; raise it to {256 + len(special)} or, for lines to become tokens, to "
            "1024 or more"
        )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in format_.whole),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=list(format_.roles),
        chat_template=format_.template,
        clean_up_tokenization_spaces=False,
        model_max_length=1 << 20,
    )

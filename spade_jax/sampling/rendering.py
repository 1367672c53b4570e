"""Messages to token ids, turn by turn, exactly as the tokenizer's own chat template has it.

The template is rendered with every control-token string inside a message replaced by a marker, so
the control tokens found in the rendered text are the template's own. What is left between them is
plain text and is encoded by a copy of the tokenizer that knows no control tokens: no observation,
tool result or document can produce one. A reply given as token ids stands behind a marker of its
own and is put in as it is, never decoded.
"""

import json
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers
from transformers import PreTrainedTokenizerFast

Message = Mapping[str, Any]
Piece = str | list[int]  # a text, or ids that stand as they are

_MARK = "\ue4f7"  # private use; one in a text is itself replaced by a marker
_MARKER = re.compile(f"{_MARK}(\\d+){_MARK}")
_REPLY = -1  # stands for the ids of a reply; no token has it
_EXCHANGE = ({"role": "user", "content": "a"}, {"role": "assistant", "content": [_REPLY]})


class TemplateError(ValueError):
    """A tokenizer whose chat template cannot be rendered exactly; names the reason and remedy."""


class Renderer:
    """Renders conversations for one tokenizer.

    A message is a mapping with ``role`` and ``content`` and whatever else the template reads.
    The ``content`` of an assistant message may be text or token ids, as they were sampled.
    Control tokens are all added tokens of the tokenizer. In an assistant's text those that are
    not ``special`` (``<think>``, ``<tool_call>``) count, elsewhere none does.

    Attributes:
      append_only: whether a longer conversation always extends the ids of the shorter one with
        its reply. If not (Qwen3 drops earlier thinking), :meth:`extend` is refused: render the
        whole conversation, replies as text, and start a new trajectory there.
      end_of_turn: ids that the template puts after a reply up to its end-of-turn token; empty if
        it has none.
      stop_ids: ids that end a reply: end of turn, eos and ``stop_ids``.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        stop_ids: Iterable[int] = (),
        template_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
          stop_ids: further ids that end a reply, such as generation_config's ``eos_token_id``.
          template_options: passed to the template, such as ``{"enable_thinking": False}``.

        Raises:
          TemplateError: no chat template, or one that this class does not reproduce.
        """
        if not tokenizer.chat_template:
            raise TemplateError(
                f"{tokenizer.name_or_path or 'tokenizer'}: it has no chat template; use an "
                "instruction-tuned tokenizer or set tokenizer.chat_template"
            )
        self._tokenizer = tokenizer
        self._options = dict(template_options or {})
        added = list(tokenizer.added_tokens_decoder.items())
        self._ids = {token.content: token_id for token_id, token in added}
        self._plain = _without_added_tokens(tokenizer)
        self._scaffold = re.compile(
            "|".join(map(_pattern, _longest_first(t for _, t in added))) or "(?!)"
        )
        self._guards = {
            True: _alternatives([token.content for _, token in added if token.special]),
            False: _alternatives([token.content for _, token in added]),
        }
        self._verify()
        self.end_of_turn: list[int] = []
        self.end_of_turn = self._find_end_of_turn()
        ends = [*self.end_of_turn[-1:], tokenizer.eos_token_id, *stop_ids]
        self.stop_ids = tuple(sorted({token_id for token_id in ends if token_id is not None}))
        self.append_only = self._probe_append_only()

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[int]:
        """Ids of the conversation and of the header after which the model replies."""
        return self._render(messages, tools, True)

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[int]:
        """Ids of the conversation alone, without that header."""
        return self._render(messages, tools, False)

    def reply(self, text: str) -> list[int]:
        """Ids of a reply as the model would sample it: the text, then end of turn."""
        return self.text(text, control=True) + self.end_of_turn

    def extend(self, reply: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Ids that follow a reply: what the template puts there, ``messages``, the next header.

        Args:
          reply: the sampled ids. If they do not end with the end of turn (the reply was cut
            short), the ids returned start with it.
          messages: what came after the reply: user or tool messages.

        Raises:
          ValueError: the template is not append-only.
        """
        if not self.append_only:
            raise ValueError(
                "this chat template rewrites earlier turns (append_only is False): call prompt() "
                "with the whole conversation and start a new trajectory"
            )
        rendered = self.prompt([*_EXCHANGE, *messages])
        following = rendered[rendered.index(_REPLY) + 1 :]
        return following[self._closed(reply) :]

    def text(self, text: str, control: bool = False) -> list[int]:
        """Ids of a text by itself. ``control``: added tokens that are not special count."""
        literals: list[Piece] = []
        guarded = self._guard(text, control, literals)
        return self._encode(self._split(guarded, literals))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out."""
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return typing.cast(str, text)

    def _closed(self, reply: Sequence[int]) -> int:
        """How many ids of the end of turn the reply ends with already: all or none."""
        length = len(self.end_of_turn)
        return length if length and list(reply[-length:]) == self.end_of_turn else 0

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        generation_prompt: bool,
    ) -> list[int]:
        literals: list[Piece] = []
        guarded = [self._guard_message(message, literals) for message in messages]
        guarded_tools = self._guard(list(tools), False, literals) if tools else None
        text = self._apply_template(guarded, guarded_tools, generation_prompt)
        return self._encode(self._split(text, literals))

    def _apply_template(
        self, messages: Sequence[Message], tools: list | None, generation_prompt: bool
    ) -> str:
        text = self._tokenizer.apply_chat_template(
            typing.cast(list, messages),
            tools=tools,
            add_generation_prompt=generation_prompt,
            tokenize=False,
            **self._options,
        )
        return typing.cast(str, text)

    def _guard_message(self, message: Message, literals: list[Piece]) -> dict[str, Any]:
        assistant, guarded = message["role"] == "assistant", {}
        for key, value in message.items():
            if key == "role":
                guarded[key] = value
            elif key == "content" and assistant and _is_ids(value):
                literals.append(list(value[: len(value) - self._closed(value)]))
                guarded[key] = f"{_MARK}{len(literals) - 1}{_MARK}"
            else:
                guarded[key] = self._guard(value, assistant, literals)
        return guarded

    def _guard(self, value: Any, assistant: bool, literals: list[Piece]) -> Any:
        """``value`` with the control strings in its texts replaced by markers."""

        def hide(match: re.Match) -> str:
            literals.append(match.group())
            return f"{_MARK}{len(literals) - 1}{_MARK}"

        if isinstance(value, str):
            return self._guards[assistant].sub(hide, value)
        if isinstance(value, Mapping):
            return {key: self._guard(item, assistant, literals) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._guard(item, assistant, literals) for item in value]
        return value

    def _split(self, text: str, literals: Sequence[Piece]) -> Iterable[Piece]:
        """Plain texts and ids in the order of a rendered text."""
        place = 0
        for match in _MARKER.finditer(text):
            yield from self._split_scaffold(text[place : match.start()])
            yield literals[int(match.group(1))]
            place = match.end()
        yield from self._split_scaffold(text[place:])

    def _split_scaffold(self, text: str) -> Iterable[Piece]:
        place = 0
        for match in self._scaffold.finditer(text):
            yield text[place : match.start()]
            yield [self._ids[match[match.lastindex or 0]]]
            place = match.end()
        yield text[place:]

    def _encode(self, pieces: Iterable[Piece]) -> list[int]:
        """Ids of all pieces; texts that touch are encoded as one."""
        ids: list[int] = []
        plain: list[str] = []
        for piece in [*pieces, []]:
            if isinstance(piece, str):
                plain.append(piece)
                continue
            if text := "".join(plain):
                ids += self._plain.encode(text, add_special_tokens=False).ids
            plain.clear()
            ids += piece
        return ids

    def _verify(self) -> None:
        text = "Hello, world"
        talk = [{"role": role, "content": text} for role in ("user", "assistant", "user")]
        for length in (1, 3):
            expected = self._tokenizer.apply_chat_template(
                talk[:length], add_generation_prompt=True, return_dict=False, **self._options
            )
            if self.prompt(talk[:length]) != expected:
                raise TemplateError(
                    f"{self._tokenizer.name_or_path or 'tokenizer'}: rendering turn by turn does "
                    "not give the ids of its chat template (a normalizer that looks beyond one "
                    "text is the usual reason); use a byte-level BPE tokenizer"
                )

    def _find_end_of_turn(self) -> list[int]:
        rendered = self.conversation(_EXCHANGE)
        following = rendered[rendered.index(_REPLY) + 1 :]
        controls = set(self._ids.values())
        ends = [place for place, token_id in enumerate(following) if token_id in controls]
        return following[: ends[0] + 1] if ends else []

    def _probe_append_only(self) -> bool:
        user = {"role": "user", "content": "a"}
        shorter = self._apply_template([user], None, True)
        end = typing.cast(str, self._tokenizer.decode(self.end_of_turn))
        for reply in ("b", "<think>\nb\n</think>\n\nc"):
            talk = [user, {"role": "assistant", "content": reply}, user]
            if not self._apply_template(talk, None, True).startswith(shorter + reply + end):
                return False
        return True


def _without_added_tokens(tokenizer: PreTrainedTokenizerFast) -> tokenizers.Tokenizer:
    """A copy that encodes every text as plain text."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["added_tokens"] = []
    state["post_processor"] = state["truncation"] = state["padding"] = None
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def _longest_first(added: Iterable[tokenizers.AddedToken]) -> list[tokenizers.AddedToken]:
    return sorted(added, key=lambda token: -len(token.content))


def _pattern(token: tokenizers.AddedToken) -> str:
    """Where the tokenizer finds an added token, and the white space it takes with it."""
    word = (
        rf"(?<!\w){re.escape(token.content)}(?!\w)"
        if token.single_word
        else re.escape(token.content)
    )
    space = r"\s*"
    return f"{space * token.lstrip}({word}){space * token.rstrip}"


def _alternatives(words: Iterable[str]) -> re.Pattern:
    return re.compile(
        "|".join(re.escape(w) for w in sorted([*words, _MARK], key=len, reverse=True))
    )


def _is_ids(content: Any) -> bool:
    return isinstance(content, list | tuple) and all(isinstance(item, int) for item in content)

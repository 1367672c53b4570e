"""Small byte-level BPE tokenizers with the chat templates of the families we support."""

import functools

import tokenizers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Default system message, contents as they are, eos after every turn.
ZEPHYR = (
    "{% if messages[0].role != 'system' %}<|system|>\nBe kind.</s>\n{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)

# Trims every content; a header token pair; no newline after the turn.
LLAMA3 = (
    "<|begin_of_text|>{% for m in messages %}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)

# Tools in the system turn, tool results grouped in a user turn, thinking kept only after the last
# user query and stripped before it, an empty thinking block when thinking is off.
QWEN3 = """\
{%- if tools -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}# Tools
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools><|im_end|>
{% elif messages[0].role == 'system' -%}
<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif -%}
{%- set ns = namespace(last=messages | length - 1, open=true) -%}
{%- for m in messages[::-1] -%}
{%- if ns.open and m.role == 'user' and not m.content.startswith('<tool_response>') -%}
{%- set ns.open = false -%}{%- set ns.last = messages | length - 1 - loop.index0 -%}
{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) -%}
{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}
{%- elif m.role == 'assistant' -%}
{%- set content = m.content -%}{%- set thought = '' -%}
{%- if '</think>' in content -%}
{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\\n') -%}
{%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{%- if loop.index0 > ns.last and (loop.last or thought) -%}
{{ '<|im_start|>assistant\\n<think>\\n' + thought + '\\n</think>\\n\\n' + content }}
{%- else -%}
{{ '<|im_start|>assistant\\n' + content }}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}
{{ '<|im_start|>user' }}
{%- endif -%}
{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{ '<|im_end|>\\n' }}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false -%}
{{ '<think>\\n\\n</think>\\n\\n' }}
{%- endif -%}
{%- endif -%}
"""

# The public Llama 3 and Qwen pre-tokenizer: line breaks stay together whatever follows.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_CORPUS = [
    "Guess a number between 1 and 10. The answer is \\boxed{7}.\n\nWell done!\n",
    "def step(self, action):\n    return observation, reward, terminated, truncated, {}\n",
    "user assistant system tool    spaces\t tabs  \n\n\n lines naïve café 数字 🙂",
] * 4

_FAMILIES = {
    "chatml": (CHATML, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], [], "<|im_end|>"),
    "zephyr": (ZEPHYR, ["<s>", "</s>"], [], "</s>"),
    "llama3": (
        LLAMA3,
        ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        [],
        "<|eot_id|>",
    ),
    "qwen3": (
        QWEN3,
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        ["<think>", "</think>", "<tool_response>", "</tool_response>"],
        "<|im_end|>",
    ),
}
FAMILIES = tuple(_FAMILIES)


@functools.cache
def make(family: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a family, trained on a few lines."""
    template, special, added, eos = _FAMILIES[family]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    pre = tokenizers.pre_tokenizers
    backend.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    if family in ("llama3", "qwen3"):
        backend.pre_tokenizer = pre.Sequence(
            [
                pre.Split(tokenizers.Regex(_SPLIT), "isolated"),
                pre.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=special,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    backend.add_tokens([tokenizers.AddedToken(word, normalized=False) for word in added])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos)
    tokenizer.chat_template = template
    return tokenizer

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.environments.calls import Call
from spade_jax.sampling.rendering import Renderer
from spade_jax.selfplay import tool_agent
from spade_jax.warm_start import desks, tokenizer

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Does it in one of two ways.",
            "parameters": {
                "type": "object",
                "properties": {"way": {"type": "string", "enum": ["newest", "oldest"]}},
                "required": ["way"],
            },
        },
    }
]


def texts():
    rng = random.Random(0)
    made = []
    for _ in range(150):
        skill, domain = rng.choice(list(desks.DEEDS)), rng.choice(list(desks.THINGS))
        task, way = map(rng.choice, desks.DEEDS[skill])
        place = rng.choice(desks.PLACES)
        source = desks.create(rng, skill, domain, "truth").source
        made.append(f"```python\n{source}```")
        made.append(f"lamp, please: {task}\n\nHINT: {desks.HINT.format(place)}")
        made.append(f"{way}, still: {task}")
        made.append(Call(task, {"way": way}).render())
        made.append(Call("look", {"place": place}).render())
        made.append(json.dumps(TOOLS))
    return made


@pytest.fixture(scope="module")
def trained():
    return tokenizer.train(texts(), 2560, tokenizer.TOOLS)


def test_every_text_survives(trained):
    renderer = Renderer(trained)

    @settings(deadline=None)
    @given(text=st.text(st.characters(exclude_categories=["Cs"])))
    def survives(text):
        assert renderer.decode(renderer.text(text)) == text

    survives()


def test_a_program_has_about_twenty_tokens_and_a_call_three(trained):
    programs = [text for text in texts() if text.startswith("```")]
    assert max(len(trained.encode(program)) for program in programs) <= 24
    assert len(trained.encode(Call("find", {"way": "newest"}).render())) == 3


@pytest.mark.parametrize(
    ("text", "surroundings"),
    [
        (
            "rename",
            ["lamp, please: {}", "rug, please: {}\n\nHINT: look: 'diary'", "yes, still: {}"],
        ),
        ("newest", ['"way": "{}"}}}}', "{}, still: find"]),
        ("diary", ["        self.place = '{}'\n", "look: '{}'", '{{"place": "{}"}}}}']),
        ('["newest", "oldest"]', ["rng.choice({})\n", "Literal{}):", '"enum": {}}}']),
    ],
)
def test_what_recurs_has_the_same_token_everywhere(trained, text, surroundings):
    (alone,) = trained.encode(text)
    for around in surroundings:
        assert alone in trained.encode(around.format(text)), around


def test_tools_are_shown_first_and_dialogues_are_append_only(trained):
    renderer = Renderer(trained)
    tool_agent.check_template(renderer)
    assert renderer.append_only
    talk = [
        {"role": "user", "content": "please: find"},
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "right"},
    ]
    assert trained.apply_chat_template(talk, tools=TOOLS, tokenize=False) == (
        f"<|system|>{json.dumps(TOOLS)}<|end|><|user|>please: find<|end|>"
        "<|assistant|>a<|end|><|tool|>right<|end|>"
    )

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.sampling.rendering import Renderer
from spade_jax.warm_start import tokenizer
from spade_jax.warm_start.families import FAMILIES


def texts():
    rng = random.Random(0)
    sources = [rng.choice(FAMILIES).create(rng, "truth").source for _ in range(300)]
    return [f"```python\n{source}```" for source in sources]


@pytest.fixture(scope="module")
def trained():
    return tokenizer.train(texts(), 1024, tokenizer.GAMES)


def test_every_text_survives(trained):
    renderer = Renderer(trained)

    @settings(deadline=None)
    @given(text=st.text(st.characters(exclude_categories=["Cs"])))
    def survives(text):
        assert renderer.decode(renderer.text(text)) == text

    survives()


def test_programs_take_fewer_than_two_tokens_a_line(trained):
    programs = texts()[:20]
    lines = sum(len(program.splitlines()) for program in programs)
    assert sum(len(trained.encode(program)) for program in programs) < 2 * lines


@pytest.mark.parametrize(
    ("text", "surroundings"),
    [
        ("truth", ["        noun = '{}'\n", "'{}' The truth\nWrite"]),
        ("knock", ["        self.word = '{}'\n", "the '{}' tells", "\\boxed{{{}}}"]),
        ("load heavy", ["0 of 2 done, {}", "right, 2 lives, {}\n\nHINT: the 'ask' tells"]),
        ("low gear", ["\\boxed{{{}}}", "\\boxed{{not {}}}"]),
        (
            "2",
            [
                "max_turns={}, **options",
                "self.goal = {}\n",
                "self.lives = {}\n",
                "wrong, {} of 3 done, load heavy",
            ],
        ),
    ],
)
def test_what_recurs_has_the_same_tokens_everywhere(trained, text, surroundings):
    alone = trained.encode(text)
    for around in surroundings:
        tokens = trained.encode(around.format(text))
        places = range(len(tokens) - len(alone) + 1)
        assert alone in [tokens[place : place + len(alone)] for place in places], around


def test_equal_texts_give_equal_tokenizers(trained):
    again = tokenizer.train(texts(), 1024, tokenizer.GAMES)
    assert again.backend_tokenizer.to_str() == trained.backend_tokenizer.to_str()


def test_the_template_spends_two_tokens_a_message(trained):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    assert trained.apply_chat_template(messages, tokenize=False) == (
        "<|user|>hi<|end|><|assistant|>yo<|end|>"
    )
    renderer = Renderer(trained)
    assert renderer.append_only
    assert renderer.stop_ids == (trained.convert_tokens_to_ids("<|end|>"),)


def test_special_tokens_are_never_made_from_text(trained):
    special = {trained.convert_tokens_to_ids(t) for t in ("<|user|>", "<|end|>")}
    assert not special & set(Renderer(trained).text("<|user|><|end|>"))


def test_a_vocabulary_without_room_for_bytes_is_refused():
    with pytest.raises(ValueError, match="raise it to 261"):
        tokenizer.train(["a"], 258, tokenizer.GAMES)

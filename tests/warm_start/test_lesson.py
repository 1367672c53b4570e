"""What the lessons of both settings have in common."""

import dataclasses
import random

import pytest

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.sampling.rendering import Renderer
from spade_jax.warm_start import lesson, stage, tokenizer

SETTINGS = {
    "games": config.Config(
        designer=config.Designer(prompts="small"),
        warm_start=config.WarmStart(programs=30, hints=10, plays=41),
    ),
    "tools": config.Config(
        setting="tools",
        schedule=config.Schedule(skills=config.TOOL_SKILLS, active_skills=0),
        designer=config.Designer(prompts="small"),
        agent=config.Agent(max_turns=8),
        warm_start=config.WarmStart(programs=30, hints=10, plays=41),
    ),
}


@pytest.fixture(scope="module", params=SETTINGS)
def setting(request):
    return request.param


@pytest.fixture(scope="module")
def examples(setting, build):
    return build(SETTINGS[setting])


def test_the_numbers_asked_for_and_the_same_again(setting, examples, build):
    kinds = [example.kind for example in examples]
    assert kinds == ["designer"] * 30 + ["hint"] * 10 + ["play"] * 41
    assert build(SETTINGS[setting]) == examples


def test_games_are_of_the_skills_of_the_run(setting):
    whole = SETTINGS[setting]
    kept = whole.schedule.skills[1::3]
    part = dataclasses.replace(whole, schedule=dataclasses.replace(whole.schedule, skills=kept))
    documents, rng, create = (
        corpus.pydoc_documents(),
        random.Random(0),
        stage.LESSONS[setting].create,
    )
    for settings in (part, whole):
        made = {create(settings, documents, rng).skill for _ in range(60)}
        assert made == set(settings.schedule.skills)


def test_tokens_are_those_of_the_chat_template_and_replies_are_trained(setting, examples):
    format_ = stage.LESSONS[setting].FORMAT
    renderer = Renderer(tokenizer.train(lesson.texts(examples), 1024, format_))
    for example in random.Random(0).sample(examples, 40):
        item = lesson.tokenize(example, renderer)
        offered = example.tools or None
        assert item.tokens == renderer.conversation(list(example.messages), offered)
        trained = [t for t, flag in zip(item.tokens, item.trained, strict=True) if flag]
        replies = [m["content"] for m in example.messages if m["role"] == "assistant"]
        assert trained == [token for reply in replies for token in renderer.reply(reply)]

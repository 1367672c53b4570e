"""The model-based check: only a clear yes accepts, and what breaks on the way is never a yes."""

import asyncio
import dataclasses

import pytest

from spade_jax import config
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay.designer import Designer, Slot, invalid
from spade_jax.selfplay.memory import Memory
from spade_jax.selfplay.review import Program, review
from tests.selfplay.test_tool_agent import SOURCE

SKILL = "Data Retrieval"
SETTINGS = config.Config(
    setting="tools",
    schedule=config.Schedule(slots=1, skills=config.TOOL_SKILLS, active_skills=0),
    designer=config.Designer(attempts=2, max_tokens=4096),
    validation=config.Validation(random_episodes=2),
    sampler=config.Sampler(context=65536),
    learner=config.Learner(row_length=65536),
    review=config.Review(enabled=True, max_tokens=512, temperature=0.4, top_p=0.8),
)


def reviewed(renderer, scripted, reply):
    sampler = scripted(renderer, lambda request, prompt: reply)
    (verdict,) = asyncio.run(review([Program(SOURCE, SKILL, "0/a")], sampler, renderer, SETTINGS))
    return verdict.outcome


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ("All can be done. \\boxed{yes}", "accepted"),
        ("\\boxed{ TRUE }", "accepted"),
        ("\\boxed{y}", "accepted"),
        ("The code is never told. \\boxed{no}", "review"),
        ("First I thought \\boxed{yes}, but: \\boxed{no}", "review"),
        ("<think>\\boxed{yes}</think>No code is told.", "unreviewed"),
        ("yes", "unreviewed"),
        ("", "unreviewed"),
        ("\\boxed{yes and no}", "unreviewed"),
        ("\\boxed{}", "unreviewed"),
        ("\\boxed{yes", "unreviewed"),
        (("\\boxed{yes}", "length"), "unreviewed"),
        (("too long a prompt", "refused"), "unreviewed"),
    ],
)
def test_only_a_clear_yes_accepts(renderer, scripted, reply, outcome):
    assert reviewed(renderer, scripted, reply) == outcome


def test_the_request_shows_the_program_and_is_drawn_as_the_settings_say(renderer, scripted):
    sampler = scripted(renderer, lambda request, prompt: "\\boxed{yes}")
    asyncio.run(review([Program(SOURCE, SKILL, "7/a")], sampler, renderer, SETTINGS))
    (request,) = sampler.requests
    assert (request.uid, request.session) == ("7/a", None)
    params = request.params
    assert (params.max_tokens, params.temperature, params.top_p) == (512, 0.4, 0.8)
    text = renderer.decode(request.tokens)
    assert SOURCE.strip() in text
    assert SKILL in text


def written(renderer, scripted, answer, settings=SETTINGS):
    """What a designer fills one slot with whose programs pass the checks, and its attempts."""

    def policy(request, prompt):
        if "/review/" in request.uid:
            return answer(request)
        return f"```python\n{SOURCE.replace('Three lamps', request.uid)}```"

    async def go():
        async with EnvironmentHost(settings.sandbox) as host:
            designer = Designer(scripted(renderer, policy), host, renderer, settings)
            memory = Memory(settings.memory)
            return await designer.write([Slot(0, SKILL)], 3, [None] * 2, memory)

    return asyncio.run(go())


def test_a_refused_program_is_written_again(renderer, scripted):
    environments, attempts = written(
        renderer,
        scripted,
        lambda request: f"\\boxed{{{'no' if request.uid[-1] == '0' else 'yes'}}}",
    )
    assert [attempt.outcome for attempt in attempts] == ["review", "accepted"]
    assert attempts[0].reason == "the reviewer wrote: \\boxed{no}"
    assert [environment.source for environment in environments] == [attempts[1].source]
    assert len(invalid(attempts, 3)) == 1


def test_a_review_without_a_verdict_accepts_nothing_and_costs_the_designer_nothing(
    renderer, scripted
):
    environments, attempts = written(renderer, scripted, lambda request: "I cannot tell.")
    assert environments == []
    assert [attempt.outcome for attempt in attempts] == ["unreviewed"] * 2
    assert invalid(attempts, 3) == []


def test_a_sampler_that_fails_ends_the_run_and_accepts_nothing(renderer, scripted):
    def fail(request):
        raise ConnectionError("no server")

    with pytest.raises(ConnectionError, match="no server"):
        written(renderer, scripted, fail)


def test_it_is_off_unless_asked_for(renderer, scripted):
    def fail(request):
        raise AssertionError("nobody is to be asked")

    settings = dataclasses.replace(SETTINGS, review=config.Review())
    environments, _ = written(renderer, scripted, fail, settings)
    assert len(environments) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"setting": "games", "schedule.skills": config.GAME_SKILLS}, "review.enabled: needs"),
        ({"designer.prompts": "small"}, "review.enabled: needs"),
        ({"review.max_tokens": 32768}, r"review.max_tokens: 32768 leaves no room"),
    ],
)
def test_where_it_cannot_work_it_is_refused(changes, message):
    values = config.default_config()
    values.setting = "tools"
    values.schedule.skills = config.TOOL_SKILLS
    values.review.enabled = True
    config.from_config_dict(values)
    values.update_from_flattened_dict(changes)
    with pytest.raises(config.ConfigError, match=message):
        config.from_config_dict(values)

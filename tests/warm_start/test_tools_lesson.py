import asyncio
import dataclasses
import random
import re

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.environments import validation
from spade_jax.environments.parsing import parse_source
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay.prompts import tools as prompts
from spade_jax.warm_start import desks, tools

SETTINGS = config.Config(
    setting="tools",
    schedule=config.Schedule(skills=config.TOOL_SKILLS, active_skills=0),
    designer=config.Designer(prompts="small"),
    agent=config.Agent(max_turns=8),
    warm_start=config.WarmStart(programs=30, hints=10, plays=41),
)


def of_kind(built, kind):
    return [example for example in built if example.kind == kind]


def test_designer_replies_are_of_the_skill_domain_and_document_asked_for(built):
    skills = set()
    for example in of_kind(built, "designer"):
        asked, reply = (message["content"] for message in example.messages)
        source = parse_source(reply)
        titled, where, what = asked.splitlines()[-3:]
        skill, domain = what.removeprefix("Write "), where.partition(", ")[0]
        assert f'\'{titled.split(chr(39))[1]}\'"""' in source
        tasks, ways = desks.DEEDS[skill]
        assert all(f"def tool_{task}(" in source for task in tasks)
        assert all(f'"{word}"' in source for word in (*ways, *desks.THINGS[domain]))
        skills.add(skill)
    assert skills == set(config.TOOL_SKILLS)


def test_requests_show_whatever_memory_may_hold():
    """Exemplars, one or two, environments to avoid, both or neither."""
    rng, documents = random.Random(0), corpus.pydoc_documents()
    shown = set()
    for _ in range(80):
        request = tools.designer_example(SETTINGS, documents, rng).messages[0]["content"]
        avoided = any(f"{verdict} " in request for verdict in ("too easy", "too hard"))
        shown.add((request.count("```python"), avoided))
    assert shown == {(count, avoided) for count in (0, 1, 2) for avoided in (False, True)}


def test_designer_replies_pass_validation(built):
    async def run():
        async with EnvironmentHost(config.Sandbox()) as host:
            sources = [parse_source(e.messages[-1]["content"]) for e in of_kind(built, "designer")]
            return [
                await validation.validate(
                    host, source, config.Validation(), max_turns=8, setting="tools"
                )
                for source in sources[:3]
            ]

    assert [report.reason for report in asyncio.run(run()) if not report.accepted] == []


def test_hints_are_what_their_programs_keep_secret(built):
    for example in of_kind(built, "hint"):
        asked, hint = (message["content"] for message in example.messages)
        assert "def solution" not in asked
        secret = re.search(r"self\.place = '(\w+)'", asked)
        assert hint == desks.HINT.format(secret[1])


def test_plays_are_dialogues_in_both_arms(built):
    plays = of_kind(built, "play")
    hinted = [play for play in plays if "HINT:" in play.messages[0]["content"]]
    assert 0 < len(hinted) < len(plays)
    won = [play for play in plays if play.messages[-1]["content"] == "\\boxed{done}"]
    assert 0 < len(won) < len(plays)
    for play in plays:
        observation, _, hint = play.messages[0]["content"].partition("\n\nHINT: ")
        assert prompts.agent("small", observation=observation, hint=hint or None) == [
            play.messages[0]
        ]
        assert play.messages[-1]["role"] == "assistant"
        assert [tool["function"]["name"] for tool in play.tools][2] == "look"


def test_the_lesson_follows_its_seed():
    documents = corpus.pydoc_documents()
    other = dataclasses.replace(SETTINGS, seed=1)
    first, second = (
        tools.designer_example(SETTINGS, documents, random.Random(settings.seed))
        for settings in (SETTINGS, other)
    )
    assert first != second

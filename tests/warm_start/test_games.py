import asyncio
import random

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.environments import validation
from spade_jax.environments.parsing import parse_action, parse_source
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay import prompts
from spade_jax.warm_start import games

SETTINGS = config.Config(
    designer=config.Designer(prompts="small"),
    warm_start=config.WarmStart(programs=30, hints=10, plays=41),
)


def of_kind(built, kind):
    return [example for example in built if example.kind == kind]


def test_designer_replies_are_new_programs_on_their_document(built):
    for example in of_kind(built, "designer"):
        asked, reply = (message["content"] for message in example.messages)
        source = parse_source(reply)
        title = asked.splitlines()[-2].split("'")[1]
        assert f"noun = '{title}'" in source
        name = source.split("class ")[1].split("(")[0].split(":")[0]
        assert name not in asked


def test_requests_show_whatever_memory_may_hold():
    """Exemplars, environments to avoid, both or neither: a skill may have either alone."""
    rng, documents = random.Random(0), corpus.pydoc_documents()
    shown = set()
    for _ in range(60):
        request = games.designer_example(SETTINGS, documents, rng).messages[0]["content"]
        avoided = any(f"{verdict} " in request for verdict in ("too easy", "too hard"))
        shown.add(("```" in request, avoided))
    assert shown == {(False, False), (False, True), (True, False), (True, True)}


def test_designer_replies_pass_validation(built):
    async def run():
        async with EnvironmentHost(config.Sandbox()) as host:
            sources = [parse_source(e.messages[-1]["content"]) for e in of_kind(built, "designer")]
            return [
                await validation.validate(host, source, config.Validation(), max_turns=10)
                for source in sources[:8]
            ]

    assert [report.reason for report in asyncio.run(run()) if not report.accepted] == []


def test_hint_prompts_are_the_loops_own(built):
    for example in of_kind(built, "hint"):
        asked, hint = (message["content"] for message in example.messages)
        assert "def solution" not in asked
        assert asked.startswith("import random")
        assert hint


def test_plays_are_episodes_in_both_arms(built):
    plays = of_kind(built, "play")
    hinted = [play for play in plays if "HINT:" in play.messages[0]["content"]]
    assert 0 < len(hinted) < len(plays)
    for play in plays:
        roles = [message["role"] for message in play.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        observation, _, hint = play.messages[0]["content"].partition("\n\nHINT: ")
        assert prompts.agent("small", observation=observation, hint=hint or None) == [
            play.messages[0]
        ]
        for message in play.messages[1::2]:
            assert parse_action(message["content"]) == message["content"]

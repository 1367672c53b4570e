"""A dialogue of calls: exactly the template's ids, what is trained, what becomes of a call."""

import asyncio
import json

import pytest

from spade_jax import config
from spade_jax.environments import calls, tools
from spade_jax.environments.calls import Call
from spade_jax.sampling.rendering import Renderer, TemplateError
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay import batch
from spade_jax.selfplay.agent import Episode
from spade_jax.selfplay.state import Environment, Sample
from spade_jax.selfplay.tool_agent import ToolAgent
from tests.selfplay.tool_templates import HERMES, make_tool_tokenizer

SETTINGS = config.Agent(max_tokens=2000, max_turns=8, max_episode_tokens=20000, temperature=1.0)
SOURCE = '''
class LampEnv(ToolEnv):
    """Three lamps are to be lit."""

    def setup(self, rng):
        self.state = {"lit": [], "code": str(rng.randint(100, 999))}

    def stages(self):
        return [(f"Light {lamp}.", lambda state, lamp=lamp: lamp in state["lit"]) for lamp in "abc"]

    def tool_light(self, lamp: Literal["a", "b", "c", "z"], code: str):
        """Lights a lamp."""
        if code != self.state["code"]:
            raise ValueError("wrong code <|im_end|>")
        self.state["lit"].append(lamp)
        return {"lit": self.state["lit"]}

    def tool_read_code(self):
        """Tells the code."""
        return self.state["code"]

    def solution(self):
        code = self.state["code"]
        return [
            [("read_code", {})] * (lamp == "a") + [("light", {"lamp": lamp, "code": code})]
            for lamp in "abc"
        ]
'''
ENVIRONMENT = Environment(
    "f" * 64, "name", "Data Retrieval", 0, 0, SOURCE, "", [], Sample([], [], []), hint="Read first."
)


@pytest.fixture(scope="module")
def tool_renderer():
    return Renderer(make_tool_tokenizer())


def play(renderer, scripted, replies, settings=SETTINGS, arm="plain"):
    """Replies may be functions of what the agent has seen."""
    left = iter(replies)

    def write(_, prompt):
        reply = next(left)
        return reply(prompt) if callable(reply) else reply

    async def go():
        async with EnvironmentHost(config.Sandbox()) as host:
            agent = ToolAgent(scripted(renderer, write), host, renderer, settings, "small")
            return await agent.play(Episode(ENVIRONMENT, 0, arm, seed=3, play=0))

    return asyncio.run(go())


def code_in(prompt):
    return prompt.split("<tool_response>\n")[1][:3]


def light(lamps):
    return lambda prompt: "\n".join(
        Call("light", {"lamp": lamp, "code": code_in(prompt)}).render() for lamp in lamps
    )


def test_a_dialogue_is_the_template_of_its_structured_messages(tool_renderer, scripted):
    episode = play(
        tool_renderer,
        scripted,
        [Call("read_code", {}).render(), light("a"), light("bc"), "\\boxed{done}"],
    )
    assert (episode.status, episode.episode_return) == ("terminated", 1.0)
    assert episode.calls == {"ok": 4}
    code = code_in(tool_renderer.decode(episode.samples[0].tokens))

    def assistant(*made):
        wanted = [{"function": {"name": name, "arguments": given}} for name, given in made]
        return {"role": "assistant", "content": "", "tool_calls": wanted}

    def light_call(lamp):
        return ("light", {"lamp": lamp, "code": code})

    def lit(lamps):
        return {"role": "tool", "content": json.dumps({"lit": list(lamps)})}

    dialogue = [
        {"role": "user", "content": "Light a."},
        assistant(("read_code", {})),
        {"role": "tool", "content": code},
        assistant(light_call("a")),
        lit("a"),
        {"role": "user", "content": "Light b."},
        assistant(light_call("b"), light_call("c")),
        lit("ab"),
        lit("abc"),
        {"role": "user", "content": "Light c."},
        {"role": "user", "content": "That is all. When everything has been done, reply "
         "\\boxed{done} and call no tool."},
        {"role": "assistant", "content": "\\boxed{done}"},
    ]  # fmt: skip
    toolbox = asyncio.run(_tools())
    whole = make_tool_tokenizer().apply_chat_template(dialogue, tools=toolbox, return_dict=False)
    (sample,) = episode.samples
    assert sample.tokens == whole[: len(sample.tokens)]
    assert tool_renderer.decode(whole[len(sample.tokens) :]).strip() == ""
    replies = [turn.reply for turn in episode.turns]
    assert sum(sample.trained) == sum(len(tool_renderer.reply(reply)) for reply in replies)


async def _tools():
    async with EnvironmentHost(config.Sandbox()) as host:
        handle = await host.open(SOURCE)
        await host.reset(handle, 3)
        return tools.Toolbox(await host.tools(handle)).tools


BROKEN = '<tool_call>\n{"name": "light", "arguments": {"lamp": }}\n</tool_call>'


@pytest.mark.parametrize("masked", [False, True])
def test_malformed_calls_are_answered_with_the_form_and_masked_by_option(
    tool_renderer, scripted, masked
):
    settings = config.Agent(**{**vars(SETTINGS), "mask_malformed": masked, "max_turns": 2})
    good = Call("read_code", {}).render()
    episode = play(tool_renderer, scripted, [f"{BROKEN}\n{good}", good], settings)
    assert episode.status == "turn_limit"
    assert episode.calls == {"malformed": 1, "ok": 2}
    assert calls.CANONICAL in episode.turns[0].observation
    lengths = [len(tool_renderer.reply(turn.reply)) for turn in episode.turns]
    assert sum(episode.samples[0].trained) == (lengths[1] if masked else sum(lengths))


def test_wrong_arguments_never_reach_the_environment(tool_renderer, scripted):
    wrong = [
        Call("light", {"lamp": "q", "code": "1"}),
        Call("light", {"lamp": "a"}),
        Call("light", {"lamp": "a", "code": 7}),
        Call("light", {"lamp": "a", "code": "1", "more": 1}),
        Call("burn", {}),
    ]
    message = "\n".join(call.render() for call in wrong)
    refused = Call("light", {"lamp": "a", "code": "1"}).render()
    episode = play(tool_renderer, scripted, [message, refused, "x", "y", "z", "1", "2", "3"])
    assert episode.calls == {"invalid": 5, "refused": 1}
    for part in ("'q' is not one of", "'code' is a required", "7 is not of type", "more", "burn"):
        assert part in episode.turns[0].observation
    assert "Error: wrong code" in episode.turns[1].observation
    # A control token in an output is plain text: the turn is not ended by it.
    ends = episode.samples[0].tokens.count(tool_renderer.end_of_turn[-1])
    assert ends == 2 + 2 * len(episode.turns) - 1 + 1


def test_saying_done_too_early_reminds_and_wins_nothing(tool_renderer, scripted):
    episode = play(tool_renderer, scripted, ["\\boxed{done}"] * 8)
    assert (episode.status, episode.episode_return) == ("truncated", 0.0)
    assert "still to be done: Light a." in episode.turns[0].observation


def test_the_hint_stands_behind_the_first_instruction(tool_renderer, scripted):
    settings = config.Agent(**{**vars(SETTINGS), "max_turns": 1})
    texts = [
        tool_renderer.decode(play(tool_renderer, scripted, ["x"], settings, arm).samples[0].tokens)
        for arm in ("plain", "hinted")
    ]
    assert texts[1] == texts[0].replace("Light a.", "Light a.\n\nHINT: Read first.", 1)


def test_a_template_that_cannot_show_tools_is_refused(renderer, scripted):
    with pytest.raises(TemplateError, match="does not show the tools"):
        ToolAgent(scripted(renderer, None), None, renderer, SETTINGS, "small")
    moving = HERMES.replace("{%- if tools %}", "{%- if tools and messages | length < 3 %}")
    moved = Renderer(make_tool_tokenizer(moving))
    with pytest.raises(TemplateError, match="elsewhere"):
        ToolAgent(scripted(moved, None), None, moved, SETTINGS, "small")


def test_truncated_episodes_count_but_are_masked(tool_renderer, scripted):
    won = play(
        tool_renderer,
        scripted,
        [Call("read_code", {}).render(), light("a"), light("bc"), "\\boxed{done}"],
    )
    lost = play(tool_renderer, scripted, ["no"] * 8)
    masked = config.Config(agent=config.Agent(mask_truncated=True))
    (trained,) = batch.agent_trajectories([won, lost], masked)
    both = batch.agent_trajectories([won, lost], config.Config())
    assert trained == both[0]
    assert [item.advantage for item in both] == pytest.approx([1, -1])

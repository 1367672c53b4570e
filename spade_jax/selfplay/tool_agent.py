"""The agent of the setting ``tools``: its messages are function calls, or words to the user."""

from spade_jax import config
from spade_jax.environments import calls, parsing
from spade_jax.environments import tools as contract
from spade_jax.environments.calls import Call, Malformed
from spade_jax.environments.tools import Answer, Toolbox
from spade_jax.sampling.interface import Completion, Sampler
from spade_jax.sampling.rendering import Renderer, TemplateError
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay.agent import Agent, Conversation, Episode, Turn
from spade_jax.selfplay.prompts import tools as prompts

OUTCOMES = ("ok", "refused", "invalid", "malformed")
"""What becomes of a call: done; refused by the tool; against its schema; not readable."""


class ToolAgent(Agent):
    """Plays tool environments.

    All calls of a message are made in order, and answered by one tool message each; instructions
    that they reveal follow as user messages. A message without a call is words to the user, and
    ends the episode if it says that everything has been done. What a message says beside its calls
    is not heard.
    """

    def __init__(
        self,
        sampler: Sampler,
        host: Host,
        renderer: Renderer,
        settings: config.Agent,
        prompt_set: str,
    ):
        """
        Raises:
          TemplateError: the chat template has no place for tools, or moves it.
        """
        super().__init__(sampler, host, renderer, settings, prompt_set)
        check_template(renderer)

    async def _begin(self, episode: Episode, handle: int) -> Conversation:
        tools = Toolbox(await self._host.tools(handle)).tools
        messages = prompts.agent(
            self._prompt_set, observation=episode.observation, hint=episode.hint
        )
        return Conversation(self._renderer, messages, tools)

    async def _answer(
        self, episode: Episode, conversation: Conversation, handle: int, reply: str
    ) -> bool:
        toolbox = Toolbox(conversation.tools)
        wanted = calls.parse_calls(reply, toolbox.schemas)
        if not wanted:
            return await super()._answer(episode, conversation, handle, reply)
        answers = [await self._call(episode, handle, toolbox, item) for item in wanted]
        if self._settings.mask_malformed and any(isinstance(item, Malformed) for item in wanted):
            conversation.untrain()
        messages = [{"role": "tool", "content": answer.output} for answer in answers]
        told = [text for answer in answers for text in answer.instructions]
        messages += [{"role": "user", "content": text} for text in told]
        observation = "\n".join(message["content"] for message in messages)
        episode.turns.append(Turn(reply, parsing.without_thinking(reply).strip(), observation, 0.0))
        conversation.observed(messages)
        return True

    async def _call(
        self, episode: Episode, handle: int, toolbox: Toolbox, call: Call | Malformed
    ) -> Answer:
        if isinstance(call, Malformed):
            outcome, answer = "malformed", Answer(call.answer, False, ())
        elif problem := toolbox.wrong(call):
            outcome, answer = "invalid", Answer(f"Error: {problem}", False, ())
        else:
            answer = contract.answer(await self._host.call(handle, call.name, call.arguments))
            outcome = "ok" if answer.ok else "refused"
        episode.calls[outcome] += 1
        return answer


def check_template(renderer: Renderer) -> None:
    """Raises TemplateError where tools cannot be offered, or a dialogue not be continued."""
    name = "look_up"
    parameters = {"type": "object", "properties": {}, "required": []}
    tool = {"name": name, "description": "Looks.", "parameters": parameters}
    tools = [{"type": "function", "function": tool}]
    messages = [{"role": "user", "content": "a"}]
    conversation = Conversation(renderer, messages, tools)
    if name not in renderer.decode(conversation.tokens):
        raise TemplateError(
            "the chat template does not show the tools that it is given; use the tokenizer of a "
            "model that can call functions"
        )
    reply = Call(name, {}).render()
    answers = [{"role": "tool", "content": "b"}, {"role": "user", "content": "c"}]
    if not renderer.append_only:
        return  # each turn is rendered as a whole
    tokens = renderer.reply(reply)
    conversation.sampled(Completion(tokens, [0.0] * len(tokens), "stop", 0))
    conversation.observed(answers)
    whole = [*messages, {"role": "assistant", "content": reply}, *answers]
    if conversation.tokens != renderer.prompt(whole, tools):
        raise TemplateError(
            "the chat template shows tools elsewhere as a conversation grows, so that what was "
            "sampled would not be what is trained; use a tokenizer whose template shows them first"
        )

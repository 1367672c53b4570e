"""ACEBench's dialogue: an agent, an executor of its calls and, in many turns, a user.

By the official rules: the agent is shown one message with all that was said, but in many steps not
what it said itself. There all its replies go to the executor. In many turns only those do that can
be read as calls; the others go to the user, who is told nothing else. A phrase of the agent or the
user ends the dialogue, from the third message on.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax.benchmarks.interface import Message, Policy, Talk
from spade_jax.benchmarks.user import User
from spade_jax.environments import parsing
from spade_jax.sampling.interface import SamplingParams
from spade_jax.sandbox.workers import Workers

MESSAGES = 40  # after the first
FINISH = "finish conversation"
NUDGE = "Please do not ask me any questions, use the known conditions to solve the problem"
USER = SamplingParams(max_tokens=1000, temperature=0.001)


@dataclasses.dataclass
class Dialogue:
    """One dialogue.

    Attributes:
      name: under which the agent and the user hold their sides.
      entry: the item, as the backend takes it.
      params: of the agent's replies.
      said: messages so far, the role of each who said it; thinking is left in.
      executed: what the executor was told.
    """

    name: str
    entry: Mapping[str, Any]
    agent: Policy
    params: SamplingParams
    user: User
    workers: Workers
    said: list[Message] = dataclasses.field(default_factory=list)
    executed: list[str] = dataclasses.field(default_factory=list)
    _history: str = ""
    _replies: int = 0

    async def run(self) -> None:
        """Has it held.

        Raises:
          Unanswered: the agent or the user does not answer.
          Broken: either answers nobody any more.
          Fault: a worker failed.
        """
        if self.entry["category"] == "agent_multi_step":
            await self._steps()
            return
        prompt = await self.workers.run("user_prompt", self.entry)
        talk = self.user.talk(self.agent, self.name, USER, _prompt(prompt))
        async with talk as user:
            await self._turns(user)

    async def _steps(self) -> None:
        self._hear("user", self.entry["question"])
        for step in range(MESSAGES // 2):
            message = await self._ask_agent()
            if step and FINISH in message:
                return
            self._hear("execution result", await self._execute(message) or NUDGE)

    async def _turns(self, user: Talk) -> None:
        message = await self._ask_user(user)
        to = "agent"
        for number in range(MESSAGES):
            if to == "agent":
                message = await self._ask_agent()
                self._hear("agent", message)
                to = "executor" if await self.workers.run("is_calls", message) else "user"
            elif to == "executor":
                self._hear("execution", str(await self._execute(message)))
                to = "agent"
            else:
                user.tell([{"role": "user", "content": message}])
                message = await self._ask_user(user)
                to = "agent"
            if number > 1 and FINISH in message:
                return

    async def _ask_agent(self) -> str:
        prompt = await self.workers.run("agent_prompt", self.entry, self._history)
        name = f"{self.name}/{self._replies}"
        async with self.agent.talk(name, self.params, _prompt(prompt)) as talk:
            reply = await talk.reply()
        self._replies += 1
        return self._note("agent", reply)

    async def _ask_user(self, user: Talk) -> str:
        message = self._note("user", await user.reply())
        self._hear("user", message)
        return message

    async def _execute(self, message: str) -> str | None:
        """What the message's calls return; None if it is no calls."""
        self.executed.append(message)
        answer: str | None = await self.workers.run("answer", self.entry, self.executed)
        self.said.append({"role": "execution", "content": answer or NUDGE})
        return answer

    def _note(self, who: str, reply: str) -> str:
        """Writes a reply down; what was meant for others, its thinking left out."""
        self.said.append({"role": who, "content": reply})
        return parsing.without_thinking(reply).strip()

    def _hear(self, who: str, message: str) -> None:
        self._history += f"{who}:{message}\n"


def _prompt(texts: Sequence[str]) -> list[Message]:
    system, user = texts
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]

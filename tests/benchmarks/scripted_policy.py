"""A policy that is no model: it says in each dialogue what it was told to."""

import contextlib

from spade_jax.benchmarks.interface import Unanswered


class ScriptedPolicy:
    """``replies``: name of a dialogue -> its replies; after the last one there is no answer."""

    def __init__(self, replies):
        self.replies = replies
        self.told, self.tools = {}, {}

    def protocol(self):
        return {"script": "test"}

    @contextlib.asynccontextmanager
    async def talk(self, name, params, messages, tools=()):
        self.told[name], self.tools[name] = list(messages), list(tools)
        yield Script(list(self.replies(name)), self.told[name])


class Script:
    def __init__(self, replies, told):
        self.replies, self.told = replies, told

    async def reply(self):
        if not self.replies:
            raise Unanswered("context: the script is at its end")
        return self.replies.pop(0)

    def tell(self, messages):
        self.told += messages

"""The ways in which playing an environment can fail, told apart by who pays."""


class EnvironmentFault(Exception):
    """The environment's code misbehaved: it raised, hung, lied about types or ate its limits.

    ``kind`` is a short stable word for metrics: 'syntax', 'raised', 'timeout', 'memory', 'died',
    'malformed', 'too_large', 'missing'. ``output`` is what the environment had printed, capped.
    """

    def __init__(self, kind: str, reason: str, output: str = ""):
        super().__init__(f"{kind}: {reason}")
        self.kind = kind
        self.reason = reason
        self.output = output


class HostFault(Exception):
    """Ours: the sandbox could not serve the call.

    The episode is dropped and counted, never scored.
    """


class NoHost(Exception):
    """There is nowhere left to run environments, and nothing that a run could do but end."""

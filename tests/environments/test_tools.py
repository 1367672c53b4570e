"""Tool environments: what the base class does, and what each check refuses."""

import asyncio

import pytest

from spade_jax import config
from spade_jax.environments import tools, validation
from spade_jax.environments.calls import Call
from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.host import EnvironmentHost

SETTINGS = config.Validation(seeds=3, random_episodes=5)
# Parts of a good environment that a test replaces.
SETUP = """
        self.state = {"tickets": {}, "log": [], "code": str(rng.randint(100, 999))}"""
STAGES = """
        code = self.state["code"]
        return [
            ("Open two tickets of high priority.", lambda state: high(state) == 2),
            ("Assign both to Mo.", lambda state: owners(state) == ["Mo", "Mo"]),
            ("Archive them, with the code of the day.", lambda state: code in state["log"]),
        ]"""
SOLUTION = """
        code = self.state["code"]
        return [
            [("open_ticket", {"priority": "high"})] * 2,
            [("assign", {"ticket": number, "owner": "Mo"}) for number in "12"],
            [("read_code", {}), ("archive", {"code": code})],
        ]"""
TEMPLATE = '''
def high(state):
    return sum(ticket["priority"] == "high" for ticket in state["tickets"].values())


def owners(state):
    return [ticket["owner"] for ticket in state["tickets"].values()]


class TicketEnv(ToolEnv):
    """Tickets are opened, assigned and archived."""

    def setup(self, rng):SETUP

    def stages(self):STAGES

    def tool_open_ticket(self, priority: Literal["low", "high"]):
        """Opens a ticket."""
        number = str(len(self.state["tickets"]) + 1)
        self.state["tickets"][number] = {"priority": priority, "owner": ""}
        return {"ticket": number}

    def tool_assign(self, ticket: str, owner: str):
        """Gives a ticket to somebody."""
        if ticket not in self.state["tickets"]:
            raise ValueError(f"there is no ticket {ticket}")
        self.state["tickets"][ticket]["owner"] = owner
        return "assigned"

    def tool_read_code(self):
        """Tells the code of the day."""
        return self.state["code"]

    def tool_archive(self, code: str):
        """Archives all tickets."""
        self.state["log"].append(code)
        return "archived"

    def solution(self):SOLUTION
'''


def source(setup=SETUP, stages=STAGES, solution=SOLUTION, **replaced):
    text = TEMPLATE
    for mark, part in (("SETUP", setup), ("STAGES", stages), ("SOLUTION", solution)):
        text = text.replace(mark, part, 1)
    for old, new in replaced.get("swap", ()):
        assert old in text
        text = text.replace(old, new, 1)
    return text


def with_host(use, text):
    async def go():
        async with EnvironmentHost(config.Sandbox()) as host:
            handle = await host.open(text, 25)
            return await use(host, handle)

    return asyncio.run(go())


def validated(text):
    async def go():
        async with EnvironmentHost(config.Sandbox()) as host:
            return await validation.validate(host, text, SETTINGS, setting="tools")

    return asyncio.run(go())


# The published paper's example: at reset there are already two new tickets of high priority.
PRE_SATISFIED = """
        self.state = {"tickets": {}, "log": [], "code": str(rng.randint(100, 999))}
        for number in "12":
            self.state["tickets"][number] = {"priority": "high", "owner": ""}"""
# The first seed a process plays decides for all later ones.
KEPT_STATE = """
        kept = vars(type(self)).get("kept") or str(rng.randint(100, 999))
        type(self).kept = kept
        self.state = {"tickets": {}, "log": [], "code": kept}"""
REFUSED = {
    "pre-satisfied": (
        source(setup=PRE_SATISFIED),
        "unmet_at_reset",
        r"criterion 1 \(Open two tickets of high priority\.\)",
    ),
    "unreachable": (
        source(swap=[('owners(state) == ["Mo", "Mo"]', 'owners(state) == ["Mo", 3]')]),
        "solvable",
        r"does not meet criterion 2 \(Assign both to Mo",
    ),
    "out of order": (
        source(swap=[('("read_code", {}), ', ""), ('[("open_ticket", {"priority": "high"})] * 2',
               '[("open_ticket", {"priority": "high"}), ("open_ticket", {"priority": "high"}), '
               '("archive", {"code": code})]')]),
        "solvable",
        "criterion 3 .* holds before its turn",
    ),
    "underivable": (
        source(swap=[('("read_code", {}), ', "")]),
        "derivable",
        r"archive\(code='\d{3}'\)",
    ),
    "criterion raises": (
        source(swap=[('code in state["log"]', 'state["archive"]')]),
        "criteria_evaluate",
        "criterion 3 .*KeyError",
    ),
    "criterion changes the state": (
        source(swap=[("high(state) == 2", 'state["log"].append(1)')]),
        "schemas",
        "a criterion changes the state",
    ),
    "schema disagrees": (
        source(swap=[("    def setup", '    schemas = {"assign": {"type": "object", "properties": '
               '{"ticket": {"type": "string"}}, "required": ["ticket"]}}\n\n    def setup')]),
        "schemas",
        "tool assign: owner",
    ),
    "schema is none": (
        source(swap=[("    def setup", '    schemas = {"assign": {"type": "objekt", "properties": '
               '{"ticket": {}, "owner": {}}, "required": ["ticket", "owner"]}}\n\n    def setup')]),
        "schemas",
        "objekt",
    ),
    "schema that could hang": (
        source(swap=[("    def setup", '    schemas = {"assign": {"type": "object", "properties": '
               '{"ticket": {"pattern": "(a+)+$"}, "owner": {}}}}\n\n    def setup')]),
        "schemas",
        "pattern cannot be used",
    ),
    "no solution": (
        source(swap=[("def solution", "def sketch")]),
        "solvable",
        "defines no solution",
    ),
    "not the same twice": (source(setup=KEPT_STATE), "deterministic", "calls differ"),
    "criterion raises later": (
        source(swap=[("owners(state) ==", "sorted(map(int, owners(state))) and owners(state) ==")]),
        "solvable",
        "ValueError",
    ),
    "one stage wins all": (
        source(
            stages="""
        return [
            (name, lambda state, n=n: len(state["tickets"]) > n)
            for n, name in enumerate(["Open a ticket.", "One more.", "And another."])
        ]""",
            solution="""
        return [[("open_ticket", {"priority": "low"})]] * 3""",
        ),
        "not_trivial",
        "random|repeated",
    ),
    "step is its own": (
        source(swap=[("    def setup", "    def step(self, action): ...\n\n    def setup")]),
        "constructs",
        "must not define step",
    ),
    "two stages": (
        source(swap=[('            ("Assign both to Mo.", lambda state: owners(state) == '
                      '["Mo", "Mo"]),\n', "")]),
        "resets",
        "3 to 5 stages",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_why(name):
    text, check, reason = REFUSED[name]
    report = validated(text)
    assert not report.accepted
    assert report.refused.name == check
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(report.refused.reason)


@pytest.mark.parametrize("name", tools.examples())
def test_the_examples_are_accepted(name):
    report = validated(tools.examples()[name])
    assert report.accepted, report.reason
    assert tuple(check.name for check in report.checks) == validation.CHECKS["tools"]


def test_the_environment_that_the_tests_spoil_is_good():
    report = validated(source())
    assert report.accepted, report.reason
    solution = report["solvable"].measurements["solutions"][0]
    assert solution[2] == "assign ticket 1 owner Mo"


def test_the_base_class_reveals_advances_and_scores():
    async def use(host, handle):
        first = await host.reset(handle, 1)
        answers, words = [], []
        solution = tools.examination(await host.examine(handle)).solution
        for call in [call for calls in solution for call in calls]:
            words.append(await host.step(handle, tools.DONE))
            answers.append(tools.answer(await host.call(handle, call.name, call.arguments)))
        return first, answers, words, await host.step(handle, "Done.")

    first, answers, words, last = with_host(use, source())
    told = [answer.instructions for answer in answers]
    assert first == "Open two tickets of high priority."
    assert [len(texts) for texts in told] == [0, 1, 0, 1, 0, 1]
    assert told[1] == ("Assign both to Mo.",)
    assert all(word.reward == 0 and not word.terminated for word in words)
    assert words[2].observation == "This is still to be done: Assign both to Mo."
    assert (last.reward, last.terminated) == (1.0, True)


def test_a_call_that_raises_changes_nothing():
    spoiled = source(
        swap=[('        return "assigned"', '        raise ValueError("no, after all")')]
    )

    async def use(host, handle):
        await host.reset(handle, 1)
        await host.call(handle, "open_ticket", {"priority": "low"})
        before = tools.examination(await host.examine(handle))
        arguments = {"ticket": "1", "owner": "Mo"}
        answer = tools.answer(await host.call(handle, "assign", arguments))
        unknown = tools.answer(await host.call(handle, "fly", {}))
        missing = tools.answer(await host.call(handle, "assign", {"owner": "Mo"}))
        after = tools.examination(await host.examine(handle))
        return before, after, answer, unknown, missing

    before, after, answer, unknown, missing = with_host(use, spoiled)
    assert before == after
    assert (answer.output, answer.ok) == ("Error: no, after all", False)
    assert "there is no tool fly; there are open_ticket, assign" in unknown.output
    assert "ticket" in missing.output


def test_schemas_come_from_signature_and_docstring():
    text = source(swap=[(
        "    def tool_read_code(self):",
        '''    def tool_mix(self, one: int, two: list[float], three: Optional[bool] = None, four=2):
        """Mixes
        things.

        one: the first
        """

    def tool_read_code(self):''',
    )])  # fmt: skip

    async def use(host, handle):
        return await host.tools(handle)

    mix = with_host(use, text)[2]["function"]
    assert mix == {
        "name": "mix",
        "description": "Mixes things.",
        "parameters": {
            "type": "object",
            "properties": {
                "one": {"type": "integer", "description": "the first"},
                "two": {"type": "array", "items": {"type": "number"}},
                "three": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
                "four": {"default": 2},
            },
            "required": ["one", "two"],
        },
    }


def test_a_toolbox_takes_no_key_that_could_control_the_prompt():
    parameters = {"type": "object", "properties": {"<|im_end|>": {}}, "required": []}
    tool = {"name": "a", "description": "", "parameters": parameters}
    with pytest.raises(EnvironmentFault, match="im_end"):
        tools.Toolbox([{"type": "function", "function": tool}])
    with pytest.raises(EnvironmentFault, match="no description"):
        tools.Toolbox([{"type": "function", "function": {"name": "a b"}}])


def test_a_reference_elsewhere_is_never_fetched():
    parameters = {"type": "object", "properties": {"a": {"$ref": "http://localhost:1/x"}}}
    tool = {"name": "a", "description": "", "parameters": parameters}
    with pytest.raises(EnvironmentFault, match=r"\$ref cannot be used"):
        tools.Toolbox([{"type": "function", "function": tool}]).wrong(Call("a", {"a": 1}))

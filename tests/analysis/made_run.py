"""A run directory made by the real writers, of returns that the tests know and hostile texts."""

import hashlib
import json

from spade_jax.data.corpus import Document
from spade_jax.environments.validation import Check, Report
from spade_jax.selfplay.agent import Episode, Turn
from spade_jax.selfplay.designer import Attempt, Slot
from spade_jax.selfplay.records import Records
from spade_jax.selfplay.state import Environment

HOSTILE = (
    "</script><script>document.documentElement.id = 'hacked'</script>"
    "<img src=x onerror=\"document.documentElement.id = 'hacked'\">"
    "$data ${script} \u2028 &lt;b&gt;"
)
SKILLS = ("Optimization", "Causal Inference")
# Environment -> returns of the plain episodes in both iterations, and of the hinted in the first.
RETURNS = {
    "first": ([1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]),
    "second": ([0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]),
    "third": ([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], []),
}


def write(workdir, iterations=2):
    records = Records(workdir)
    environments = []
    for index, name in enumerate(RETURNS):
        source = f"# {name}\n{HOSTILE}\nclass Env:\n    turns = {index}\n"
        environment = Environment(
            sha=hashlib.sha256(source.encode()).hexdigest(),
            name=f"00000_{index:03d}_{name}",
            skill=SKILLS[index % 2],
            slot=index,
            written=0,
            source=source,
            document="doc",
            exemplars=[environments[0].sha] if index == 1 else [],
            sample=None,
            hint=HOSTILE if RETURNS[name][2] else None,
        )
        environments.append(environment)
        slot = Slot(index, environment.skill)
        checks = (Check("parses", "passed", HOSTILE),)
        records.environment(
            environment,
            Attempt(slot, 0, Document("doc", HOSTILE, ""), [], [], "accepted", source=source,
                    report=Report(checks)),
        )  # fmt: skip
    records.rejection(
        0, Attempt(Slot(3, SKILLS[0]), 1, None, [], [], "no_code", HOSTILE, reply=HOSTILE)
    )
    for iteration in range(iterations):
        for environment, (*plain, hinted) in zip(environments, RETURNS.values(), strict=True):
            arms = {"plain": plain[iteration], "hinted": hinted if iteration == 0 else []}
            for arm, returns in arms.items():
                for play, value in enumerate(returns):
                    turn = Turn(HOSTILE, HOSTILE, HOSTILE, value)
                    records.episode(
                        Episode(environment, iteration, arm, seed=play, play=play,
                                status="terminated", observation=HOSTILE, turns=[turn])
                    )  # fmt: skip
        if iteration == 1:
            records.designer(1, environments[0], 0.5, 0.5, 0.75, 0.1)
        records.metrics(
            {
                "iteration": iteration, "environments/accepted": 3, "environments/learnable": 1,
                "returns/plain": 0.5 + iteration / 8, "regret/mean": 0.375, "regret/error": 0.125,
                "agent/trained": 12, "designer/trained": iteration, "refused/no_code": 1,
                "grad_norm/agent": 0.5, "grad_norm/designer": 0.25 * iteration,
            }
        )  # fmt: skip
    (workdir / "config.json").write_text(json.dumps({"iterations": 2}))
    return environments

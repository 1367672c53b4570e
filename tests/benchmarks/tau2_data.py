"""What an agent and a user of tau2-bench say, as pairs of words and calls."""

from spade_jax.environments.calls import Call

STOP = ("###STOP###", [])
GO_ON = ("Please go on.", [])
NOTHING = {"agent": [], "user": [STOP]}


def gold(task):
    """Side -> what it says: all actions that the data lists, then what has to be told."""
    criteria = task["evaluation_criteria"]
    said = {"agent": [], "user": []}
    turn = "user"
    for action in criteria["actions"] or []:
        side = "user" if action.get("requestor") == "user" else "agent"
        if side != turn:
            said[turn].append(GO_ON)
            turn = side
        said[side].append(("", [(action["name"], action["arguments"])]))
    if turn == "user":
        said["user"].append(GO_ON)
    said["agent"].append(("\n".join(["Done.", *(criteria.get("communicate_info") or [])]), []))
    said["user"].append(STOP)
    return said


def rendered(words, calls):
    """A pair as a model writes it."""
    return "\n".join([*([words] if words else []), *(Call(*call).render() for call in calls)])

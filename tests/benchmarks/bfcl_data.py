"""Entries and truths of BFCL as the wheel has them, and calls of a truth by keyword."""

import ast
import functools
import json
from pathlib import Path

import bfcl_eval

from spade_jax.benchmarks import bfcl
from spade_jax.environments.calls import Call

DATA = Path(bfcl_eval.__file__).parent / "data"


@functools.cache
def rows(name):
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def pairs(category):
    name = f"BFCL_v4_multi_turn_{category}.json"
    return list(zip(rows(name), rows(f"possible_answer/{name}"), strict=True))


@functools.cache
def parameters():
    """Function -> names of its parameters in order."""
    documents = [
        document
        for name in bfcl.DOCUMENTS.values()
        for document in rows(f"multi_turn_func_doc/{name}.json")
    ]
    return {document["name"]: list(document["parameters"]["properties"]) for document in documents}


def call(text):
    """A call of a truth as a policy would make it: all arguments by keyword."""
    node = ast.parse(text, mode="eval").body
    values = [ast.literal_eval(argument) for argument in node.args]
    arguments = dict(zip(parameters()[node.func.id], values, strict=False))
    arguments |= {word.arg: ast.literal_eval(word.value) for word in node.keywords}
    # As JSON has it: tuples are lists.
    return Call(node.func.id, json.loads(json.dumps(arguments)))


def oracle(truth):
    """Replies that make the calls of a truth, turn by turn."""
    for calls in truth:
        if calls:
            yield "\n".join(call(text).render() for text in calls)
        yield "That is all."

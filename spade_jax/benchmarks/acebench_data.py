"""ACEBench's agent files, in English: found, checked, made into items."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema

from spade_jax.benchmarks import asked
from spade_jax.benchmarks.acebench_checker import ALIASES
from spade_jax.benchmarks.interface import Absent, Item

NAME = "acebench_agent"
COUNTS = {"multi_step": 20, "multi_turn": 30}
CLASSES = ("BaseApi", "MessageApi", "ReminderApi", "FoodPlatform", "Travel")
PLACES = ("", "data_en", "data_all/data_en")  # the files' folder, in a user's
CHINESE = re.compile("[一-鿿]")
QUESTION = {
    "type": "object",
    "required": ["id", "question", "initial_config", "involved_classes", "function"],
    "properties": {
        "id": {"type": "string"},
        "question": {"type": "string", "minLength": 1},
        "initial_config": {"type": "object", "additionalProperties": {"type": "object"}},
        "involved_classes": {"type": "array", "minItems": 1, "items": {"enum": [*CLASSES]}},
        "function": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "required": ["name", "description", "parameters"]},
        },
    },
}
TEXTS = {"type": "array", "items": {"type": "string"}}
ANSWER = {
    "type": "object",
    "required": ["id", "ground_truth", "mile_stone"],
    "properties": {
        "ground_truth": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "propertyNames": {"enum": [*CLASSES, *ALIASES]},
                "additionalProperties": {"type": "object"},
            },
        },
        "mile_stone": {"anyOf": [TEXTS, {"type": "array", "items": TEXTS}]},
    },
}


def command_for(data: Path) -> str:
    """What gets the files."""
    return f"git clone --depth=1 https://github.com/ACEBench/ACEBench {data / NAME}"


def read(data: Path) -> tuple[list[Item], str]:
    """All items, and a digest of what they hold.

    The files are ``data_agent_multi_step.json``, ``data_agent_multi_turn.json`` and those of the
    same names in ``possible_answer/``: in ``data/acebench_agent``, or below it as in a clone of the
    repository.

    Raises:
      Absent: they are not there, or are not what they should be.
    """
    folder = next((p for p in _places(data) if (p / _file("multi_step")).is_file()), None)
    if folder is None:
        raise Absent(f"no file {data / NAME / _file('multi_step')}", command_for(data))
    try:
        items = [item for name in COUNTS for item in _items(folder, name)]
    except (OSError, ValueError) as error:
        raise Absent(str(error), command_for(data)) from error
    return items, asked.digest(*(json.dumps(item.data, sort_keys=True) for item in items))


def _places(data: Path) -> list[Path]:
    return [data / NAME / place for place in PLACES]


def _file(category: str) -> str:
    return f"data_agent_{category}.json"


def _items(folder: Path, category: str) -> list[Item]:
    questions = _rows(folder / _file(category), QUESTION, COUNTS[category])
    answers = _rows(folder / "possible_answer" / _file(category), ANSWER, COUNTS[category])
    items = []
    for question, answer in zip(questions, answers, strict=True):
        if question["id"] != answer["id"]:
            raise ValueError(f"{folder}: the answer of {question['id']} is that of {answer['id']}")
        if CHINESE.search(question["question"]):
            raise ValueError(f"{folder}: {question['id']} is not in English")
        items.append(Item(question["id"], category, _data(category, question, answer)))
    return items


def _data(category: str, question: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("question", "initial_config", "involved_classes", "function")
    return {
        "entry": {key: question[key] for key in kept} | {"category": f"agent_{category}"},
        "truth": answer["ground_truth"],
        "milestones": answer["mile_stone"],
    }


def _rows(path: Path, schema: Mapping[str, Any], count: int) -> Sequence[dict[str, Any]]:
    """The rows of a file, one a line, as the schema has them.

    Raises:
      OSError, ValueError: there is no such file, or it is another.
    """
    lines = path.read_text("utf-8").split("\n")
    validator = jsonschema.Draft202012Validator(schema)
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: no JSON: {error}") from error
        if wrong := jsonschema.exceptions.best_match(validator.iter_errors(row)):
            raise ValueError(f"{path}, line {number}: {wrong.json_path}: {wrong.message:.200}")
        rows.append(row)
    if len(rows) != count:
        raise ValueError(f"{path} holds {len(rows)} rows, not {count}")
    return rows

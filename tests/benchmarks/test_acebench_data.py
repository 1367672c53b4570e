"""ACEBench's files: where they are looked for, what is refused."""

import json
import shutil

import pytest

from spade_jax.benchmarks import acebench_data
from spade_jax.benchmarks.interface import Absent
from tests.benchmarks import acebench_items

STEP, TURN = "data_agent_multi_step.json", "data_agent_multi_turn.json"


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(acebench_data, "COUNTS", {"multi_step": 3, "multi_turn": 2})
    return acebench_items.write(tmp_path)


def test_items_have_what_they_need(files, tmp_path):
    items, digest = acebench_data.read(tmp_path)
    assert [item.name for item in items] == list(acebench_items.ORACLE)
    assert [item.column for item in items] == ["multi_step"] * 3 + ["multi_turn"] * 2
    question, answer = acebench_items.STEPS[1]
    data = items[1].data
    assert data["truth"] == answer["ground_truth"]
    assert data["milestones"] == answer["mile_stone"]
    assert data["entry"].pop("category") == "agent_multi_step"
    assert data["entry"].items() <= question.items()
    assert len(digest) == 64


def test_a_clone_and_a_bare_folder_are_the_same(files, tmp_path):
    cloned = acebench_data.read(tmp_path)[1]
    bare = tmp_path / "other" / acebench_data.NAME
    shutil.copytree(files, bare)
    assert acebench_data.read(tmp_path / "other")[1] == cloned
    path = bare / "possible_answer" / STEP
    path.write_text(path.read_text().replace("256.0", "255.0"))
    assert acebench_data.read(tmp_path / "other")[1] != cloned


def test_absence_is_told_with_the_command(tmp_path):
    with pytest.raises(
        Absent, match=r"no file .*Get it with: git clone .*ACEBench/ACEBench .*agent"
    ):
        acebench_data.read(tmp_path)


def edited(path, number, edit):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    edit(rows[number])
    path.write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize(
    ("place", "edit", "reason"),
    [
        (STEP, lambda row: row.pop("question"), r"line 2: \$: 'question' is a required"),
        (
            STEP,
            lambda row: row.update(function=[{"name": "f"}]),
            r"\$\.function\[0\]: 'description'",
        ),
        (TURN, lambda row: row.update(involved_classes=["Bank"]), r"'Bank' is not one of"),
        (TURN, lambda row: row.update(question="买两杯茶"), "agent_multi_turn_1 is not in English"),
        (
            f"possible_answer/{STEP}",
            lambda row: row.update(id="x"),
            "the answer of agent_multi_step_1",
        ),
        (
            f"possible_answer/{STEP}",
            lambda row: row["ground_truth"].append({"MessageAPI": {}}),
            r"\$\.ground_truth\[2\]: 'MessageAPI' is not one of",
        ),
        (f"possible_answer/{TURN}", lambda row: row.update(mile_stone=[1]), r"\$\.mile_stone"),
    ],
)
def test_other_schemas_are_refused(files, tmp_path, place, edit, reason):
    edited(files / place, 1, edit)
    with pytest.raises(Absent, match=reason):
        acebench_data.read(tmp_path)


def test_files_in_part_are_refused(files, tmp_path):
    path = files / TURN
    lines = path.read_text().splitlines()
    path.write_text(lines[0])
    with pytest.raises(Absent, match="holds 1 rows, not 2"):
        acebench_data.read(tmp_path)
    path.write_text("\n".join([lines[0], lines[1][:-3]]))
    with pytest.raises(Absent, match="line 2: no JSON"):
        acebench_data.read(tmp_path)
    path.unlink()
    with pytest.raises(Absent, match="No such file"):
        acebench_data.read(tmp_path)

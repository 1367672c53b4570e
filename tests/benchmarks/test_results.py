"""Results survive a kill at any byte, and never mix with those of another protocol."""

import json

import pytest

from spade_jax.benchmarks.interface import Outcome
from spade_jax.benchmarks.results import Mixed, Results

PROTOCOL = {"benchmark": "b", "decoding": {"temperature": 0.0}}


def outcome(name):
    return Outcome(name, "column", 1.0, "", "", {"said": f"{name} é\n"})


def written(folder):
    with Results(folder, PROTOCOL) as results:
        for name in ("a", "b", "c"):
            results.add(outcome(name))
    return (folder / "items.jsonl").read_bytes()


def test_what_was_written_is_read_back(tmp_path):
    written(tmp_path)
    with Results(tmp_path, PROTOCOL) as results:
        assert results.outcomes == {name: outcome(name) for name in ("a", "b", "c")}


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_an_unfinished_line_is_made_again(tmp_path, cut):
    whole = written(tmp_path)
    (tmp_path / "items.jsonl").write_bytes(whole[:-cut])
    with Results(tmp_path, PROTOCOL) as results:
        assert list(results.outcomes) == ["a", "b"]
        results.add(outcome("c"))
    assert (tmp_path / "items.jsonl").read_bytes() == whole


def test_another_protocol_is_refused_by_what_differs(tmp_path):
    written(tmp_path)
    other = PROTOCOL | {"decoding": {"temperature": 0.7}}
    with (
        pytest.raises(Mixed, match=r"decoding: .*0\.0.* there, .*0\.7.* now"),
        Results(tmp_path, other),
    ):
        pass
    (tmp_path / "protocol.json").unlink()
    with pytest.raises(Mixed), Results(tmp_path, PROTOCOL):
        pass


def test_one_process_at_a_time(tmp_path):
    with (
        Results(tmp_path, PROTOCOL),
        pytest.raises(Mixed, match="another process"),
        Results(tmp_path, PROTOCOL),
    ):
        pass


def test_scores_carry_their_protocol(tmp_path):
    with Results(tmp_path, PROTOCOL) as results:
        path = results.finish({"mean": 0.5})
    assert json.loads(path.read_text()) == {"mean": 0.5, "protocol": PROTOCOL}

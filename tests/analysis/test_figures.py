"""The paper's figures show what runs and evaluations hold, and name what they do not."""

import json

import made_run
import pytest
from matplotlib.figure import Figure
from test_conduct import BROKEN, CALL
from test_evaluations import evaluate

from spade_jax import report
from spade_jax.analysis import evaluations, figures

ARCHITECTURE = {
    "model_type": "qwen3", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 8,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2,
    "max_position_embeddings": 8, "tie_word_embeddings": True,
}  # fmt: skip


def run(folder, hidden=4):
    """A run directory with a model of ``hidden`` units."""
    made_run.write(folder)
    model = {"source": "scratch", "architecture": ARCHITECTURE | {"hidden_size": hidden}}
    (folder / "config.json").write_text(json.dumps({"iterations": 2, "model": model}))
    return folder


def drawn(name, *workdirs):
    """Its axes."""
    figure = Figure()
    figures.FIGURES[name](figure, evaluations.variants(workdirs))
    figure.canvas.draw()
    return figure.axes


def points(line):
    return [tuple(round(float(value), 6) for value in point) for point in line.get_xydata()]


def test_trajectories(tmp_path):
    for name in ("one", "two"):
        evaluate(run(tmp_path / name), "initial", ["a1"], ["a2", "a3", "a4"])
    evaluate(tmp_path / "one", "step-2", ["a1", "a2"], ["a3", "a4"])
    [axes] = drawn("trajectories", tmp_path / "one", tmp_path / "two")
    assert [(line.get_label(), points(line)) for line in axes.lines] == [
        ("one", [(0, 25), (2, 50)]), ("two", [(0, 25)]),
    ]  # fmt: skip


def test_learnable_share_by_variant_over_seeds(tmp_path):
    for seed in range(2):
        run(tmp_path / "sweep" / "full" / f"seed_{seed}")
    [axes] = drawn("learnable_share", tmp_path / "sweep")
    # "first" (0.5 in both iterations) of three environments with four plain plays each, then
    # "second" (0.25) too: the mean of both is trailing.
    [line] = axes.lines
    assert points(line) == [(0, round(100 / 3, 6)), (1, 50)]


def test_ablations_compare_last_checkpoints_on_common_items(tmp_path):
    evaluate(run(tmp_path / "full"), "initial", [], ["a1", "a2"])
    evaluate(tmp_path / "full", "step-2", ["a1", "a2"], ["a3"])
    evaluate(run(tmp_path / "no_memory"), "step-4", ["a1"], ["a2"])
    [axes] = drawn("ablations", tmp_path / "full", tmp_path / "no_memory")
    bars = dict(
        zip((label.get_text() for label in axes.get_yticklabels()),
            (bar.get_width() for bar in axes.patches), strict=True)
    )  # fmt: skip
    assert bars == {"no_memory": 50, "full": 100}


def test_gain_by_model_size(tmp_path):
    for name, hidden, won in (("small", 4, ["a1"]), ("large", 8, ["a1", "a2"])):
        items = {"a1", "a2", "a3", "a4"}
        evaluate(run(tmp_path / name, hidden), "initial", [], sorted(items))
        evaluate(tmp_path / name, "step-2", won, sorted(items - set(won)))
    [axes] = drawn("gain_by_size", tmp_path / "small", tmp_path / "large")
    # Embedding 10d; a layer: 2d + 2·2 of norms, attention 2·4d + 2·2d, feed-forward 3·8d; norm d.
    sizes = [49 * hidden + 4 for hidden in (4, 8)]
    shown = [points(container.lines[0]) for container in axes.containers]
    assert shown == [[(sizes[0], 25)], [(sizes[1], 50)]]


def test_disclosure_and_collapse(tmp_path):
    above, below = drawn("disclosure_and_collapse", run(tmp_path / "made"))
    [line] = above.lines
    assert points(line) == [(0, 0)]  # all three are of iteration 0, and no Python
    assert len(below.patches) == 3
    assert below.get_yticklabels()[0].get_text() == "made\nkinds: 1"


def test_the_same_instances_by_several_checkpoints(tmp_path):
    replies = {"initial": [BROKEN, BROKEN, CALL, "Done."], "step-2": [CALL, "Done."]}
    run(tmp_path / "made")
    for policy, texts in replies.items():
        said = [{"role": "assistant", "content": text} for text in texts]
        evaluate(tmp_path / "made", policy, ["a1"], ["a2"], said=said)
    length, faults, probes = drawn("same_instances", tmp_path / "made")
    assert length.get_title(loc="left") == "made: quiz, 2 items"
    assert points(faults.lines[-1]) == [(0, 0.5), (2, 0)]
    assert points(probes.lines[-1]) == [(0, 3), (2, 1)]
    first, last = (sum(map(len, texts)) / len(texts) for texts in replies.values())
    assert points(length.lines[-1]) == [(0, first), (2, last)]


def test_what_is_missing_is_named_in_place_of_the_figure(tmp_path, capsys):
    run(tmp_path / "made")
    report.main([f"--workdir={tmp_path / 'made'}", "--figures"])
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(figures.FIGURES) == len(list((tmp_path / "made/figures").iterdir()))
    assert sum("NOT DRAWN" in line for line in told) == 4
    assert "Two checkpoints of a run on the same benchmark" in told[0]


def test_nothing_at_all_is_one_line(tmp_path):
    with pytest.raises(SystemExit, match=r"NoRunError: .* of a run or of a sweep"):
        report.main([f"--workdir={tmp_path}", "--figures"])

"""The paper's tables: their means, what is missing named, no mean of a part."""

import io

import pytest
from rich.console import Console

from spade_jax import config
from spade_jax.benchmarks import published, registry, scores
from spade_jax.benchmarks.interface import Item, Outcome


@pytest.mark.parametrize("table", published.TABLES)
@pytest.mark.parametrize("place", [0, 1])
def test_printed_means_are_those_of_the_columns(table, place):
    figures = [column.figures[place] for column in published.TABLES[table]]
    # SPADE's 58.275 is printed as 58.3.
    assert sum(figures) / len(figures) == pytest.approx(published.MEANS[table][place], abs=0.051)


def made(columns, tried=4):
    items = [Item(f"{column}/{n}", column, {}) for column in columns for n in range(4)]
    outcomes = [Outcome(item.name, item.column, 1.0, "", "", {}) for item in items]
    return scores.summary(items, outcomes[: len(columns) * tried])


def shown(table, results):
    console = Console(width=200, file=io.StringIO())
    console.print(published.overview(table, results))
    return console.file.getvalue()


def test_what_is_missing_is_named_and_there_is_no_mean_of_a_part():
    results = {
        "reasoning_gym_hard": made(["math", "algorithmic", "cognition", "logic"]),
        "aime_2025": "no file there",
    }
    text = shown("games", results)
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if "│" in line}
    assert "100.0" in rows["RG logic"]
    assert "missing: AIME 2025: no file there" in text
    assert "missing: GPQA-Diamond: not asked for" in text
    assert "RG logic:" not in text
    assert "58.3" in rows["mean of 8"]
    assert "100.0" not in rows["mean of 8"]


def test_a_whole_table_has_a_mean_and_a_partial_one_has_none():
    results = {
        column.benchmark: made([column.column if column.column != "mean" else "x"])
        for column in published.TABLES["tools"]
    }
    assert published.average(published.of_table("tools", results)).mean == 1
    results["bfcl_multi_turn"] = made(["base"], tried=2)
    assert published.average(published.of_table("tools", results)) is None
    assert "PARTIAL: BFCL v4 multi-turn: 2 of 4" in shown("tools", results)


def test_results_that_do_not_compare_are_named_and_stand_beside_nothing():
    results = {
        column.benchmark: made([column.column if column.column != "mean" else "x"])
        for column in published.TABLES["tools"]
    }
    (*_, other) = results
    results[other] |= {"label": "local user simulator"}
    found = published.of_table("tools", results)
    assert [score is None for score in found] == [False, False, True]
    assert published.average(found) is None
    text = shown("tools", results)
    assert "missing: ACEBench-Agent: does not compare: local user simulator" in text


def test_groups_hold_the_tables_benchmarks_that_there_are(tmp_path):
    assert set(registry.GROUPS) == {"games", "tools"}
    for table, names in registry.GROUPS.items():
        assert set(names) <= set(published.names(table)) & set(registry.BENCHMARKS)
        assert [b.name for b in registry.find([table], tmp_path)] == names
    for name in registry.BENCHMARKS:
        (benchmark,) = registry.find([name], tmp_path)
        assert benchmark.name == name
    with pytest.raises(config.ConfigError, match=r"there are .*games, tools"):
        registry.find([], tmp_path)

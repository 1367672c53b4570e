"""The same rows out of every format."""

import json

import pyarrow
import pyarrow.parquet
import pytest
from array_record.python import array_record_module

from spade_jax.data import rows

ROWS = [{"text": f"row {i} é 日本", "number": i} for i in range(23)]


def write(path, items):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items))
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(items), path, row_group_size=5)
    else:
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for item in items:
            writer.write(json.dumps(item).encode())
        writer.close()
    return path


@pytest.mark.parametrize("suffix", rows.KINDS)
def test_every_format_gives_the_rows_in_any_order(tmp_path, suffix):
    path = write(tmp_path / f"corpus{suffix}", ROWS)
    table = rows.open_rows(str(path))
    assert len(table) == 23
    assert [table[i] for i in reversed(range(23))] == ROWS[::-1]
    assert (table.name(0), table.name(22)) == (f"corpus{suffix}:1", f"corpus{suffix}:23")


@pytest.mark.parametrize("suffix", rows.KINDS)
def test_files_that_match_are_read_one_after_the_other(tmp_path, suffix):
    for part, (start, end) in enumerate([(0, 4), (4, 5), (5, 23)]):
        write(tmp_path / f"part-{part}{suffix}", ROWS[start:end])
    table = rows.open_rows(str(tmp_path / f"part-*{suffix}"))
    assert [table[i] for i in range(len(table))] == ROWS
    assert [table.name(i) for i in (3, 4, 5)] == [
        f"part-0{suffix}:4",
        f"part-1{suffix}:1",
        f"part-2{suffix}:1",
    ]


def test_numbered_suffixes_are_known(tmp_path):
    path = write(tmp_path / "corpus.array_record", ROWS)
    path.rename(tmp_path / "corpus.array_record-00000-of-00001")
    assert rows.open_rows(f"{tmp_path}/corpus*")[22] == ROWS[22]


def test_a_line_that_is_no_utf8_spoils_itself_alone(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": "\xff\xfe"}\n{"text": "c"}')
    table = rows.open_rows(str(path))
    assert [table[0], table[2]] == [{"text": "a"}, {"text": "c"}]
    with pytest.raises(rows.RowError, match="not UTF-8"):
        table[1]


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(rows.SourceError, match=r"none\.jsonl': no such file"):
        rows.open_rows(str(tmp_path / "none.jsonl"))
    for name, reason in (("a.csv", "no known kind; there are .jsonl"),
                         ("b.parquet", "not a Parquet file"),
                         ("c.array_record", "not an ArrayRecord file")):  # fmt: skip
        (tmp_path / name).write_bytes(b"nonsense" * 20_000)
        with pytest.raises(rows.SourceError, match=f"{name}'?: .*{reason}"):
            rows.open_rows(str(tmp_path / name))

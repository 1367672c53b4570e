import json
import pydoc_data.topics

import pytest

from spade_jax.data import corpus


def take(stream, count):
    return [next(stream).id for _ in range(count)]


def numbered(count):
    return [corpus.Document(str(i), f"title {i}", f"text {i}") for i in range(count)]


def test_each_pass_holds_every_document_once_in_a_new_order():
    stream = corpus.Corpus(numbered(17), seed=3)
    passes = [take(stream, 17) for _ in range(3)]
    for one in passes:
        assert sorted(one, key=int) == [str(i) for i in range(17)]
    assert passes[0] != passes[1] != passes[2]


def test_the_seed_decides_the_order():
    assert take(corpus.Corpus(numbered(50), 1), 80) == take(corpus.Corpus(numbered(50), 1), 80)
    assert take(corpus.Corpus(numbered(50), 1), 50) != take(corpus.Corpus(numbered(50), 2), 50)


@pytest.mark.parametrize("consumed", [0, 1, 6, 7, 20])
def test_a_restored_stream_goes_on_where_the_saved_one_was(consumed):
    stream = corpus.Corpus(numbered(7), seed=5)
    take(stream, consumed)
    state = json.loads(json.dumps(stream.get_state()))
    expected = take(stream, 25)

    restored = corpus.Corpus(numbered(7), seed=5)
    take(restored, 3)
    restored.set_state(state)
    assert take(restored, 25) == expected


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_deal_out_one_stream_and_their_position_fits_any_number(processes):
    whole = take(corpus.Corpus(numbered(7), seed=5), 60)
    shares = [corpus.Corpus(numbered(7), 5, shard=(i, processes)) for i in range(processes)]
    dealt = [take(share, 10) for share in shares]
    assert [name for turn in zip(*dealt, strict=True) for name in turn] == whole[: 10 * processes]
    positions = [share.get_state() for share in shares]
    assert all(position == positions[0] for position in positions)

    alone = corpus.Corpus(numbered(7), seed=5)
    alone.set_state(positions[0])
    assert take(alone, 20) == whole[10 * processes :][:20]


def test_fields_say_where_the_text_is(tmp_path):
    path = tmp_path / "c.jsonl"
    rows = [{"question": "Why?", "answer": " Because. "}, {"question": "Alone"}, {"body": "b"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    loaded = corpus.load(str(path), 0, fields=("question+answer", "body"))
    assert [document.text for document in loaded.documents] == ["Why?\n\nBecause.", "b"]
    assert [(row.name, row.reason) for row in loaded.bad_rows] == [
        ("c.jsonl:2", 'no text in "question+answer" or "body"')
    ]


def test_pydoc_gives_every_topic_as_plain_text():
    documents = corpus.pydoc_documents()
    assert [d.id for d in documents] == [f"pydoc/{n}" for n in sorted(pydoc_data.topics.topics)]
    by_title = {d.title: d.text for d in documents}
    assert by_title["assert"].startswith('The "assert" statement\n\nAssert statements are')
    assert not [d.id for d in documents if "\n****" in d.text or not d.text]
    assert len(take(corpus.load("pydoc", 0), len(documents))) == len(documents)


def test_jsonl_reads_good_rows_and_names_bad_ones(tmp_path, caplog):
    rows = [
        json.dumps({"orig_doc": "Primes\nhave two divisors.", "text": "ignored"}),
        json.dumps({"text": "Graphs.", "title": " On graphs "}),
        "",
        "{broken",
        json.dumps({"body": "x"}),
        json.dumps(["list"]),
        json.dumps({"text": "   "}),
        json.dumps({"text": 7}),
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(rows) + "\n")

    loaded = corpus.load(str(path), 0)

    assert list(loaded.documents) == [
        corpus.Document("corpus.jsonl:1", "Primes", "Primes\nhave two divisors."),
        corpus.Document("corpus.jsonl:2", "On graphs", "Graphs."),
    ]
    assert [row.name for row in loaded.bad_rows] == [f"corpus.jsonl:{n}" for n in range(3, 9)]
    assert "skipped 6 bad rows" in caplog.text
    assert "corpus.jsonl:4 (not JSON" in caplog.text


def test_unusable_sources_say_why(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n\n")
    with pytest.raises(corpus.CorpusError, match="none of its 2 rows holds a document"):
        corpus.load(str(empty), 0)
    with pytest.raises(corpus.CorpusError, match="no such file"):
        corpus.load(str(tmp_path / "missing.jsonl"), 0)
    with pytest.raises(corpus.CorpusError, match=r"no such file\. It is 'pydoc', the path"):
        corpus.load("wikipedia", 0)
    with pytest.raises(corpus.CorpusError, match="no document"):
        corpus.Corpus([], 0)

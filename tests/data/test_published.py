"""The builders, on small files of the published schemas, read back through the corpus."""

import json
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

from spade_jax.data import corpus, published, rows

DOCUMENTS = [f"Theorem {i}.\nLet n = {i} – so be it." for i in range(12)]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """All three, built: one document a line with other keys beside it; MegaScience's columns."""
    folder = tmp_path_factory.mktemp("corpora")
    for name, field in (("games", "orig_doc"), ("tools", "text")):
        hub = folder / "hub" / name / "data"
        hub.mkdir(parents=True)
        lines = [json.dumps({field: text, "score": 1.5}) for text in DOCUMENTS]
        lines[3:3] = ["", "{broken", json.dumps({field: ""})]
        (hub / "train.jsonl").write_text("\n".join(lines))
    hub = folder / "hub" / "megascience"
    hub.mkdir()
    table = [
        {"question": text, "answer": f"({i})", "subject": "math", "source": "s"}
        for i, text in enumerate(DOCUMENTS)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), hub / "train-00000.parquet")
    for name in ("games", "tools", "megascience"):
        published.build(name, str(folder / "built"), str(folder / "hub" / name))
    return str(folder / "built")


@pytest.mark.parametrize("name", ["games", "tools", "megascience"])
def test_what_was_built_is_the_corpus(data_dir, name):
    loaded = corpus.load(f"tfds:spade_corpus/{name}", 0, data_dir=data_dir)
    answer = "\n\n({})" if name == "megascience" else ""
    expected = [text + answer.format(i) for i, text in enumerate(DOCUMENTS)]
    assert [document.text for document in loaded.documents] == expected
    assert loaded.documents[4].title == "Theorem 4."
    assert loaded.documents[4].id == f"spade_corpus/{name}:5"


def test_splits_of_tfds_can_be_named(data_dir):
    loaded = corpus.load("tfds:spade_corpus/games@train[:5]", 0, data_dir=data_dir)
    assert [d.text for d in loaded.documents] == DOCUMENTS[:5]


def test_tensorflow_is_never_imported(data_dir, tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('imported')")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from spade_jax.data import corpus\n"
        f"print(len(corpus.load('tfds:spade_corpus/games', 0, data_dir={data_dir!r}).documents))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "12\n", done.stderr


def test_what_is_missing_is_named(data_dir, tmp_path):
    for source, reason in (
        ("tfds:spade_corpus/other", r"spade_corpus/other' in .*not found.*docs/data\.md"),
        ("tfds:spade_corpus/games@test", "Unknown split 'test'"),
    ):
        with pytest.raises(corpus.CorpusError, match=reason) as caught:
            corpus.load(source, 0, data_dir=data_dir)
        assert "\n" not in str(caught.value)
    with pytest.raises(rows.SourceError, match=r"holds no \.jsonl or \.parquet file"):
        published.build("games", str(tmp_path / "built"), str(tmp_path))


def test_without_the_extra_the_remedy_is_named():
    absent = "import sys; sys.modules['tensorflow_datasets'] = None"
    program = f"{absent}; import spade_jax.data.published"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install -e '.[tfds]'" in done.stderr.splitlines()[-1]

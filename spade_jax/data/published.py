"""TFDS builders of the published corpora; TensorFlow is needed neither to build nor to read.

    python -m spade_jax.data.published games --data_dir=corpora

fetches ``games`` from the Hugging Face hub and builds it; with ``--manual_dir=FOLDER`` it takes the
files that lie there. Then train with

    --config.corpus.source=tfds:spade_corpus/games --config.corpus.data_dir=corpora
"""

import argparse
import dataclasses
import logging
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import tensorflow_datasets as tfds
except ModuleNotFoundError as error:
    remedy = f"{error}: corpora are built with the extra tfds: pip install -e '.[tfds]'"
    raise ModuleNotFoundError(remedy, name=error.name) from error

from spade_jax.data import corpus, rows

log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False, kw_only=True)
class Published(tfds.core.BuilderConfig):
    """A corpus on the hub: the repository and, as ``config.corpus.fields``, where its text is."""

    repository: str
    fields: tuple[str, ...] = corpus.FIELDS


class SpadeCorpus(tfds.core.GeneratorBasedBuilder):
    """Documents that ground environments: ``id``, ``title`` and ``text``, in the hub's order."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: typing.ClassVar = [
        Published(
            name="games",
            description="10 000 DCLM mathematics and 5 000 MegaScience documents",
            repository="spade-rl/SPADE-Grounding-Corpus-Games-15K",
        ),
        Published(
            name="tools",
            description="15 000 Nemotron pre-training code documents",
            repository="spade-rl/SPADE-Grounding-Corpus-ToolUse-15K",
        ),
        Published(
            name="megascience",
            description="All of MegaScience, of which the games corpus holds 5 000",
            repository="MegaScience/MegaScience",
            fields=("question+answer",),
        ),
    ]
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "manual_dir holds the .jsonl or .parquet files of the hub repository: "
        "hf download REPOSITORY --repo-type dataset --local-dir MANUAL_DIR"
    )

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.builder_config.description,
            homepage=f"https://huggingface.co/datasets/{self.builder_config.repository}",
            features=tfds.features.FeaturesDict({"id": text(), "title": text(), "text": text()}),
            disable_shuffling=True,
        )

    def _split_generators(self, manager: tfds.download.DownloadManager) -> dict[str, Any]:
        return {"train": self._generate_examples(Path(manager.manual_dir))}

    def _generate_examples(self, folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
        documents = corpus.Documents(rows.folder_rows(folder), self.builder_config.fields)
        for row in documents.bad_rows:
            log.warning("%s: skipped bad row %s: %s", self.name, row.name, row.reason)
        for number, document in enumerate(documents):
            yield number, dataclasses.asdict(document)


def build(name: str, data_dir: str, manual_dir: str) -> SpadeCorpus:
    """Builds ``spade_corpus/NAME`` from the files in ``manual_dir`` as ArrayRecord files.

    Raises:
      rows.SourceError: ``manual_dir`` holds no data file, or one that cannot be read.
    """
    builder = SpadeCorpus(config=name, data_dir=data_dir, file_format="array_record")
    settings = tfds.download.DownloadConfig(manual_dir=manual_dir)
    builder.download_and_prepare(download_config=settings)
    return builder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    configs = {item.name: item for item in SpadeCorpus.BUILDER_CONFIGS}
    parser.add_argument("name", choices=list(configs))
    parser.add_argument("--data_dir", required=True, help="where TFDS keeps its data sets")
    parser.add_argument("--manual_dir", help="folder with the files; none = fetch from the hub")
    chosen = parser.parse_args()
    folder = chosen.manual_dir
    if folder is None:
        import huggingface_hub

        folder = huggingface_hub.snapshot_download(
            configs[chosen.name].repository, repo_type="dataset"
        )
    builder = build(chosen.name, chosen.data_dir, folder)
    print(f"{builder.info.splits['train'].num_examples} documents in {builder.data_path}")


if __name__ == "__main__":
    main()

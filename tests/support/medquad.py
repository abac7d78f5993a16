"""A MedQuAD of eleven questions."""

import tarfile
from pathlib import Path

from benchmarks.datasets.medquad import read_medquad
from tests.support.training import COLOURS, THINGS

_PAIR = "<QAPair><Question>what is {}</Question><Answer>{}</Answer></QAPair>"


def save_archive(folder: Path) -> Path:
    """Ten questions and one twice, with an answer of its own; one answer serves two, and one is empty."""
    pairs = [_PAIR.format(thing, f"the {colour}") for thing, colour in zip(THINGS, COLOURS, strict=True)]
    pairs += [_PAIR.format("sky", "the  teal"), _PAIR.format("the milk", "the blue"), _PAIR.format("cream", "")]
    path = folder / "medquad.tar.gz"
    (folder / "page.xml").write_text(f"<Document><QAPairs>{''.join(pairs)}</QAPairs></Document>")
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder / "page.xml", "medquad/1/0000001.xml")
    return path


def save_collection(archive: Path, folder: Path) -> None:
    """Its files, and a run of three candidates a topic, so that no BM25 is needed."""
    collection = read_medquad(archive)
    collection.write_corpus(folder)
    collection.write_topics(folder, collection.topics)
    run = [
        f"{topic.query_id} Q0 a{(number + step) % 10:05d} {step} {-step} bm25\n"
        for number, topic in enumerate(collection.topics)
        for step in (1, 2, 3)
    ]
    (folder / "bm25.trec").write_text("".join(run))

"""A run of one of MS MARCO's top1000 files, which is its topics, its corpus and its candidates."""

import random

import pytest

from beamrank.errors import ConfigError
from tests.support.processes import beamrank_here
from tests.support.runs import read_trec, run_bytes
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection, small_cascade


def _lines() -> list[str]:
    """The lines of all topics, shuffled; each topic's candidates stay in their order."""
    left = {query_id: list(doc_ids) for query_id, doc_ids in CANDIDATES.items()}
    turns = random.Random(7).sample([query_id for query_id in left for _ in left[query_id]], 90)
    rows = [(query_id, left[query_id].pop(0)) for query_id in turns]
    return [f"{query_id}\t{doc_id}\t{TOPICS[query_id]}\t{DOCS[doc_id]}" for query_id, doc_id in rows]


@pytest.fixture
def collection(tmp_path) -> SmallCollection:
    made = small_cascade(tmp_path)
    first, *others = _lines()
    # The first line tells the format.
    made.write("top1000.dev.tsv", [first, "4\tbroken line", *others])
    file = {"path": "top1000.dev.tsv", "format": "top1000"}
    made.keys |= {"corpus": file, "topics": file, "candidates": {"run": "top1000.dev.tsv", "k": 9}}
    return made


def test_run_of_a_top1000_file_has_the_bytes_of_separate_files(collection, tmp_path):
    done = beamrank_here("run", collection.path)
    assert done.returncode == 0, done.stderr
    assert "unranked; the order of the file stands for the ranks" in done.stderr
    assert "rows that cannot be used: 1 (first: " in done.stderr
    assert "rows of the corpus that could not be read: 1 (first: " in done.stderr
    separate = tmp_path / "separate"
    separate.mkdir()
    small_cascade(separate).run()
    for name in ("mono.trec", "duo-sum.trec"):
        assert (collection.output / "runs" / name).read_bytes() == (separate / "out/runs" / name).read_bytes()
    assert read_trec(collection.output / "runs/candidates.trec") == CANDIDATES


def test_shards_of_a_top1000_file_do_not_matter(collection, tmp_path):
    collection.run()
    collection.run("shards=1", output=tmp_path / "one")
    assert run_bytes(tmp_path / "one") == run_bytes(collection.output)


def test_shards_of_a_top1000_file_take_over_the_tokens_of_each_query(collection, tmp_path):
    collection.write("top1000.dev.tsv", _lines())
    collection.run()
    again = collection.run("shards=3", f"reuse=[{collection.output}]", output=tmp_path / "again")
    assert run_bytes(tmp_path / "again") == run_bytes(collection.output)
    (tokenize,) = again.plan.of_step("tokenize")
    joined = again.plan.sealed(tokenize.name)
    assert joined is not None
    assert joined.total("reused_docs") == len(TOPICS) * 6
    assert joined.total("missing_docs") == 0


def test_candidate_that_only_another_query_has_is_missing(collection, tmp_path):
    """Whether a doc is found must not depend on the other queries of its shard."""
    doc_id = next(each for each in DOCS if each not in CANDIDATES["q0"])
    collection.given_run({**CANDIDATES, "q0": [doc_id, *CANDIDATES["q0"][:8]]})
    for shards in ("shards=1", "shards=10"):
        done = beamrank_here("run", collection.path, "--set", shards, "--output", tmp_path / shards)
        assert done.returncode == 1
        assert f"not in the corpus: 1 (first: '{doc_id}' of query_id 'q0')" in done.stderr


def test_index_of_a_top1000_file_is_refused(collection):
    with pytest.raises(ConfigError, match="holds candidates of its own queries alone"):
        _ = collection.with_index().config


def test_format_of_a_top1000_file_is_guessed(collection):
    for key in ("corpus", "topics"):
        collection.keys[key] = {"path": "top1000.dev.tsv"}
    done = beamrank_here("run", collection.path, "--stage", "retrieve")
    assert done.returncode == 0, done.stderr
    assert "is read as `corpus.format: top1000`" in done.stderr
    assert "is read as `topics.format: top1000`" in done.stderr

"""BEIR's and MTEB's data sets as Hugging Face has them, in Parquet and JSONL."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.corpora import list_units
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.corpora import corpus_of, docs_of, read_batches, read_docs


def _hub_layout(folder):
    """A data set as Hugging Face keeps BEIR's and MTEB's: a folder of Parquet files for each configuration."""
    tables = {
        "corpus/train-00000-of-00001": {"_id": ["1", "2"], "title": ["T", None], "text": ["x", "y"]},
        "corpus/test-00000-of-00001": {"_id": ["3"], "text": ["z"]},
        "queries/test-00000-of-00001": {"_id": ["q", "r"], "text": ["one", "two"], "vector": [[1.0], [2.0]]},
        "qrels/test-00000-of-00001": {"query-id": ["q", "r"], "corpus-id": ["1", "3"], "score": [1, 2]},
        "top_ranked/test-00000-of-00001": {"query-id": ["q", "r"], "corpus-ids": [["2", "1"], ["3"]]},
    }
    for name, columns in tables.items():
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def test_beir_reads_the_parquet_files_of_hugging_face(tmp_path):
    _hub_layout(tmp_path)
    assert sorted(read_docs(tmp_path, "beir")) == [("1", "T x"), ("2", "y"), ("3", "z")]
    assert read_docs(f"{tmp_path}/corpus/test*", "beir", ("text",)) == [("3", "z")]
    topics = list(read_topics(TopicsConfig(path=str(tmp_path), format="beir")))
    assert topics == list(read_topics(TopicsConfig(path=f"{tmp_path}/queries/*", format="parquet")))
    assert topics == [("q", "one"), ("r", "two")]
    assert read_qrels(f"{tmp_path}/qrels/*.parquet").relevance == {"q": {"1": 1}, "r": {"3": 2}}
    run = read_run(f"{tmp_path}/top_ranked/test-00000-of-00001.parquet")
    assert run.order == {"q": ["2", "1"], "r": ["3"]}
    with pytest.raises(PreflightError, match=r"has no column `title`"):
        list_units(corpus_of(tmp_path, "beir", ("title",)))


def test_beir_counts_rows_of_parquet_that_cannot_be_used(tmp_path):
    table = pa.table({"_id": ["1", "a b", "3"], "title": ["", "t", None], "text": ["x", "y", None]})
    pq.write_table(table, tmp_path / "c.parquet")
    (batch,) = read_batches(corpus_of(tmp_path / "c.parquet", "beir"))
    assert docs_of([batch]) == [("1", "x")]
    assert [row.place for row in batch.bad] == [f"{tmp_path}/c.parquet at row {row} (from 0)" for row in (1, 2)]


def test_top_ranked_is_a_run_in_jsonl_too(tmp_path):
    (tmp_path / "top_ranked.jsonl").write_text(
        '{"query-id": "q", "corpus-ids": ["b", "a"]}\n{"query-id": "r", "corpus-ids": []}\n'
    )
    assert read_run(str(tmp_path / "top_ranked.jsonl")).order == {"q": ["b", "a"]}
    (tmp_path / "top_ranked.jsonl").write_text('{"query-id": "q", "corpus-ids": ["b", "b"]}\n')
    with pytest.raises(PreflightError, match="line 1: the row names a doc of query 'q' twice"):
        read_run(str(tmp_path / "top_ranked.jsonl"))


def test_topics_in_parquet_that_cannot_be_read_are_refused(tmp_path):
    path = tmp_path / "queries.parquet"
    pq.write_table(pa.table({"id": [7, 8], "text": ["x", None]}), path)
    with pytest.raises(
        PreflightError, match=r"(?s)1 row of .*queries\.parquet:2: the topic has a field `text` that is null"
    ):
        read_topics(TopicsConfig(path=str(path), format="parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PreflightError, match=r"queries\.parquet is not a Parquet file"):
        read_topics(TopicsConfig(path=str(path), format="parquet"))

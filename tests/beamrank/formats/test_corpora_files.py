"""Parquet and BEIR as corpora."""

import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.corpora import bad_rows, corpus_of, docs_of, read_batches, read_docs
from tests.support.refusals import refuses


def _parquet(path, columns, fields=None):
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return corpus_of(path, "parquet", fields)


def test_parquet_unit_is_a_row_group(tmp_path):
    columns = {"_id": ["a", "b", "c"], "text": ["x", "", "z"], "title": ["T", "", "U"]}
    units = list_units(_parquet(tmp_path / "c.parquet", columns), unit_bytes=1)
    assert [(unit.start, unit.end) for unit in units] == [(0, 1), (1, 2)]
    batches = [batch for unit in units for batch in read_unit(unit)]
    assert docs_of(batches) == [("a", "T x"), ("b", ""), ("c", "U z")]
    assert [batch.positions for batch in batches] == [[1, 2], [3]]
    assert units[1].place(3) == f"{tmp_path}/c.parquet at row 3"


@pytest.mark.parametrize("kind", [pa.null(), pa.int32(), pa.float64(), pa.string(), pa.bool_()])
def test_column_that_is_null_throughout_may_have_any_type(tmp_path, kind):
    columns = {"_id": ["a", "b"], "title": pa.nulls(2, kind), "text": ["x", "y"]}
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    assert read_docs(tmp_path / "c.parquet", "beir") == [("a", "x"), ("b", "y")]
    bad = bad_rows(_parquet(tmp_path / "c.parquet", columns, ("title", "text")))
    assert [row.kind for row in bad] == ["null"] * 2
    if not pa.types.is_string(kind) and not pa.types.is_null(kind):
        columns |= {"title": pa.array([None, 1]).cast(kind)}
        with refuses(PreflightError, "column-type"):
            list_units(_parquet(tmp_path / "c.parquet", columns, ("title", "text")))


def test_parquet_refuses_another_file_and_a_damaged_one(tmp_path):
    path = tmp_path / "c.parquet"
    path.write_text("1\tone\n")
    with pytest.raises(PreflightError, match=r"`corpus\.format: tsv`"):
        list_units(corpus_of(path, "parquet"))
    table = pa.table(
        {"id": [f"d{i}" for i in range(999)], "text": [f"text {i}" for i in range(999)]}
    )
    pq.write_table(table, path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with refuses(PreflightError, "damaged"):
        read_batches(corpus_of(path, "parquet"))


@pytest.mark.data
def test_nfcorpus_has_3633_docs(shared_data, tmp_path):
    with zipfile.ZipFile(shared_data / "nfcorpus" / "nfcorpus.zip") as archive:
        archive.extractall(tmp_path)
    corpus = corpus_of(tmp_path / "nfcorpus", "beir")
    whole = docs_of(read_batches(corpus))
    assert len({doc_id for doc_id, _ in whole}) == len(whole) == 3633
    assert dict(whole)["MED-10"].startswith(
        "Statin Use and Breast Cancer Survival: A Nationwide Cohort Study from Fin"
    )
    assert docs_of(read_batches(corpus, 100_000)) == whole


def _hub_layout(folder):
    """A data set as Hugging Face keeps BEIR's and MTEB's: a folder of Parquet files for each
    configuration.
    """
    tables = {
        "corpus/train-00000-of-00001": {
            "_id": ["1", "2"],
            "title": ["T", None],
            "text": ["x", "y"],
        },
        "corpus/test-00000-of-00001": {"_id": ["3"], "text": ["z"]},
        "queries/test-00000-of-00001": {
            "_id": ["q", "r"],
            "text": ["one", "two"],
            "vector": [[1.0], [2.0]],
        },
        "qrels/test-00000-of-00001": {
            "query-id": ["q", "r"],
            "corpus-id": ["1", "3"],
            "score": [1, 2],
        },
        "top_ranked/test-00000-of-00001": {
            "query-id": ["q", "r"],
            "corpus-ids": [["2", "1"], ["3"]],
        },
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
    with refuses(PreflightError, "column-missing"):
        list_units(corpus_of(tmp_path, "beir", ("title",)))


def test_top_ranked_is_a_run_in_jsonl_too(tmp_path):
    (tmp_path / "top_ranked.jsonl").write_text(
        '{"query-id": "q", "corpus-ids": ["b", "a"]}\n{"query-id": "r", "corpus-ids": []}\n'
    )
    assert read_run(str(tmp_path / "top_ranked.jsonl")).order == {"q": ["b", "a"]}
    (tmp_path / "top_ranked.jsonl").write_text('{"query-id": "q", "corpus-ids": ["b", "b"]}\n')
    with refuses(PreflightError, "doc-twice", 1):
        read_run(str(tmp_path / "top_ranked.jsonl"))

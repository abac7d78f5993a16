"""`format: labelled`: one table of queries, docs and labels is corpus, topics, qrels and
candidates.
"""

import csv
import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.columns import DocColumns, TopicColumns
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.files import InputFile
from beamrank.formats.qrels import QrelsConfig, read_qrels
from beamrank.formats.rejects import Rejects
from beamrank.formats.runs import open_run_file, read_run
from beamrank.formats.schemas import Hints
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.processes import beamrank_here
from tests.support.refusals import refuses
from tests.support.runs import read_trec, run_bytes
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection, small_cascade

NAMES = ("query_id", "query", "doc_id", "text", "label")
ROWS = [
    ("q1", "who?", "d1", 'a "quoted", text', 1),
    ("q1", "who?", "d2", "another text", 0),
    ("q2", "what?", "d1", 'a "quoted", text', 0),
    ("q2", "what?", "d3", "", 2),
]
KINDS = ("tsv", "csv", "jsonl", "parquet")
LABELLED = Hints(format="labelled")


def write(
    folder: Path, kind: str, rows: Sequence[Sequence[object]] = ROWS, names: Sequence[str] = NAMES
) -> str:
    """Writes a table to a file of a kind."""
    path = folder / f"pairs.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table(list(zip(*rows, strict=True)), list(names)), path, row_group_size=3)
    elif kind == "jsonl":
        records = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
        path.write_text("".join(f"{record}\n" for record in records))
    elif kind == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([names, *rows])
    else:
        lines = ("\t".join(map(str, row)) for row in [names, *rows])
        path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def docs_of(url: str, columns: DocColumns | None = None) -> dict[str, str]:
    """The docs of a corpus, each of which is there once."""
    units = list_units(CorpusConfig(path=url, format="labelled", columns=columns), unit_bytes=20)
    rejects = Rejects("docs")
    batches = [batch for unit in units for batch in read_unit(unit, rejects)]
    docs = [doc for batch in batches for doc in zip(batch.doc_ids, batch.texts, strict=True)]
    assert len(dict(docs)) == len(docs)
    return dict(docs)


def by_hash(query_id: str, doc_ids: Sequence[str]) -> list[str]:
    return sorted(doc_ids, key=lambda each: hashlib.sha256(f"{query_id} {each}".encode()).digest())


@pytest.mark.parametrize("kind", KINDS)
def test_one_table_is_four_inputs(tmp_path, kind):
    url = write(tmp_path, kind)
    assert docs_of(url) == {"d1": 'a "quoted", text', "d2": "another text", "d3": ""}
    topics = read_topics(TopicsConfig(path=url, format="labelled"))
    assert list(topics) == [("q1", "who?"), ("q2", "what?")]
    qrels = read_qrels(QrelsConfig(path=url, format="labelled")).relevance
    assert dict(qrels) == {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 0, "d3": 2}}
    assert dict(read_qrels(url).relevance) == dict(qrels)
    run = read_run(url, hints=LABELLED)
    assert dict(run.order) == {
        "q1": by_hash("q1", ["d1", "d2"]),
        "q2": by_hash("q2", ["d1", "d3"]),
    }


def test_wikiqa_has_usual_names(tmp_path):
    names = (
        *("QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence"),
        "Label",
    )
    url = write(tmp_path, "tsv", [("Q1", "who?", "D1", "Title", "D1-0", "A text .", "1")], names)
    assert docs_of(url) == {"D1-0": "A text ."}
    assert list(read_topics(TopicsConfig(path=url, format="labelled"))) == [("Q1", "who?")]
    assert dict(read_qrels(url, LABELLED).relevance) == {"Q1": {"D1-0": 1}}
    assert dict(read_run(url, hints=LABELLED).order) == {"Q1": ["D1-0"]}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_name_other_columns(tmp_path, kind):
    url = write(tmp_path, kind, names=("number", "asked", "item", "body text", "grade of it"))
    assert docs_of(url, DocColumns(doc_id="item", text="body text"))["d2"] == "another text"
    topics = TopicsConfig(
        path=url, format="labelled", columns=TopicColumns(query_id="number", text="asked")
    )
    assert list(read_topics(topics)) == [("q1", "who?"), ("q2", "what?")]
    pair = {"query_id": "number", "doc_id": "item"}
    hints = LABELLED._replace(columns={**pair, "relevance": "grade of it"})
    assert read_qrels(url, hints).relevance["q2"] == {"d1": 0, "d3": 2}
    run = read_run(url, hints=LABELLED._replace(columns=pair))
    assert run.order.keys() == {"q1", "q2"}


def test_numbers_name_columns_without_a_header(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in ROWS))
    assert docs_of(str(path), DocColumns(doc_id=3, text=4)).keys() == {"d1", "d2", "d3"}
    hints = LABELLED._replace(columns={"query_id": 1, "doc_id": 3})
    assert read_run(str(path), hints=hints).order.keys() == {"q1", "q2"}
    with pytest.raises(PreflightError) as caught:
        read_run(str(path), hints=LABELLED)
    assert caught.value.kind == "column-missing"


@pytest.mark.parametrize("kind", KINDS)
def test_query_with_another_text_is_refused_with_both_places(tmp_path, kind):
    url = write(tmp_path, kind, [*ROWS, ("q1", "whom?", "d4", "x", 0)])
    first = 2 if kind in ("tsv", "csv") else 1
    with refuses(PreflightError, "query-twice", first + 4, url) as caught:
        read_topics(TopicsConfig(path=url, format="labelled"))
    assert f" {first} " in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", ["auto", "labelled"])
def test_header_without_a_relevance_is_said_to_lack_it(tmp_path, kind, format):
    url = write(tmp_path, kind, [row[:4] for row in ROWS], NAMES[:4])
    with pytest.raises(PreflightError) as caught:
        read_qrels(QrelsConfig(path=url, format=format))
    assert caught.value.kind == "column-missing"
    assert ": query_id, query" in str(caught.value)


@pytest.mark.parametrize("format", ["auto", "labelled"])
def test_header_with_one_usual_name_is_said_to_lack_others(tmp_path, format):
    url = write(tmp_path, "tsv", names=("number", "asked", "doc_id", "text", "gold"))
    with pytest.raises(PreflightError) as caught:
        read_qrels(QrelsConfig(path=url, format=format))
    assert caught.value.kind == "column-missing"
    assert "no header" not in str(caught.value)


def test_pair_that_comes_again_is_refused(tmp_path):
    url = write(tmp_path, "tsv", [*ROWS, ROWS[0]])
    with pytest.raises(PreflightError) as caught:
        read_run(url, hints=LABELLED)
    assert caught.value.kind == "doc-twice"


def test_order_of_candidates_is_that_of_the_whole_hash(tmp_path):
    """Many rows, which are converted as blocks."""
    rows = [(f"q{row % 3}", "query", f"d{row}", "t" * 50, 0) for row in range(3000)]
    file = open_run_file(InputFile(write(tmp_path, "tsv", rows)), LABELLED)
    for batch in file.batches():
        for row in batch.slice(0, 100).to_pylist():
            digest = hashlib.sha256(f"{row['query_id']} {row['doc_id']}".encode()).digest()
            assert row["rank"] == int.from_bytes(digest[:8], "big") >> 1
    assert read_run(file.url, hints=LABELLED).order["q1"] == by_hash(
        "q1", [f"d{row}" for row in range(1, 3000, 3)]
    )


def _pairs() -> list[tuple[object, ...]]:
    """Each topic with its candidates; every third one is relevant."""
    return [
        (query_id, TOPICS[query_id], doc_id, DOCS[doc_id], int(number % 3 == 0))
        for query_id, doc_ids in CANDIDATES.items()
        for number, doc_id in enumerate(doc_ids)
    ]


def _labelled(folder: Path, kind: str, rows: Sequence[Sequence[object]]) -> SmallCollection:
    folder.mkdir()
    made = small_cascade(folder)
    file = {"path": Path(write(folder, kind, rows)).name, "format": "labelled"}
    made.keys |= {"corpus": file, "topics": file, "qrels": file}
    made.keys["candidates"] = {"run": file["path"], "format": "labelled", "k": 9}
    return made


def test_run_of_one_table_has_the_bytes_of_four_files(tmp_path):
    (tmp_path / "four").mkdir()
    four = small_cascade(tmp_path / "four")
    hashed = {query_id: by_hash(query_id, doc_ids) for query_id, doc_ids in CANDIDATES.items()}
    ranked = ((query_id, *each) for query_id in hashed for each in enumerate(hashed[query_id], 1))
    four.write("given.tsv", (f"{query_id}\t{doc_id}\t{rank}" for query_id, rank, doc_id in ranked))
    four.keys["candidates"] = {"run": "given.tsv", "k": 9}
    four.write("qrels.txt", (f"{row[0]} 0 {row[2]} {row[4]}" for row in _pairs()))
    four.run()
    expected = run_bytes(four.output)
    assert read_trec(four.output / "runs/candidates.trec") == hashed
    rows = _pairs()
    random.Random(5).shuffle(rows)
    by_label = sorted(rows, key=lambda row: -int(str(row[4])))
    for name, kind, pairs in (("one", "tsv", rows), ("other", "parquet", by_label)):
        made = _labelled(tmp_path / name, kind, pairs)
        made.run()
        assert run_bytes(made.output) == expected


def test_needed_doc_with_another_text_is_refused_with_both_places(tmp_path):
    rows = _pairs()
    places: dict[object, list[int]] = {}
    for number, row in enumerate(rows):
        places.setdefault(row[2], []).append(number)
    doc_id, (first, again) = next((key, each[:2]) for key, each in places.items() if each[1:])
    rows[again] = (*rows[again][:3], "another text", 0)
    done = beamrank_here("run", _labelled(tmp_path / "run", "tsv", rows).path)
    assert done.returncode == 1
    assert f"doc_id '{doc_id}' appears twice in the corpus: " in done.stderr
    assert f"pairs.tsv:{first + 2} and " in done.stderr
    assert f"pairs.tsv:{again + 2}. " in done.stderr


def test_quotes_are_read_in_every_input(tmp_path):
    path = tmp_path / "pairs.tsv"
    row = '"q1"\t"a ""b"""\t"d1"\t"a\tb\nc"\t"1"'
    path.write_text("\t".join(f'"{name}"' for name in NAMES) + f"\n{row}\n")
    keys = {"path": str(path), "format": "labelled", "quotes": True}
    (unit,) = list_units(CorpusConfig.model_validate(keys))
    (batch,) = read_unit(unit)
    assert (batch.doc_ids, batch.texts) == (["d1"], ["a\tb\nc"])
    assert list(read_topics(TopicsConfig.model_validate(keys))) == [("q1", 'a "b"')]
    assert dict(read_qrels(QrelsConfig.model_validate(keys)).relevance) == {"q1": {"d1": 1}}
    assert dict(read_run(str(path), hints=LABELLED._replace(quotes=True)).order) == {"q1": ["d1"]}


def test_quotes_are_read_where_the_format_is_recognized(tmp_path):
    path = tmp_path / "qrels.tsv"
    path.write_text('query_id\tdoc_id\tlabel\n"q1"\t"d1"\t"1"\n')
    qrels = read_qrels(QrelsConfig(path=str(path), quotes=True))
    assert dict(qrels.relevance) == {"q1": {"d1": 1}}

import json
from pathlib import Path

import pytest

from beamrank import storage
from beamrank.demo.collection import (
    demo_qrels,
    demo_questions,
    demo_topics,
    held_out_objects,
    object_name,
    stdlib_docs,
    write_collection,
)
from beamrank.demo.docstrings import find_docstrings
from beamrank.demo.passages import split_docstring


@pytest.fixture(scope="module")
def docstrings() -> dict[str, str]:
    return find_docstrings()


def test_the_library_gives_thousands_of_distinct_passages():
    docs = stdlib_docs()
    assert len(docs) > 7000
    assert len({doc.doc_id for doc in docs}) == len(docs)
    assert docs == sorted(docs, key=lambda doc: (object_name(doc.doc_id), int(doc.doc_id.rsplit(":", 1)[1])))
    assert all(doc.text == " ".join(doc.text.split()) for doc in docs)
    assert not any(set(doc.doc_id) & set(" #\t\n") for doc in docs)


def test_a_docstring_becomes_its_summary_and_its_body():
    texts = {doc.doc_id: doc.text for doc in stdlib_docs() if object_name(doc.doc_id) == "textwrap.dedent"}
    assert texts["textwrap.dedent:0"] == (
        "textwrap.dedent: Remove any common leading whitespace from every line in `text`."
    )
    assert texts["textwrap.dedent:1"].startswith("textwrap.dedent: This can be used to make triple-quoted strings")


@pytest.mark.parametrize(
    "name",
    ["str.split", "random.shuffle", "os.path.join", "os.walk", "asyncio.wait_for", "unittest.TestCase.assertRaises"],
)
def test_objects_go_by_their_documented_names(docstrings, name):
    assert name in docstrings


@pytest.mark.parametrize("package", ["test", "idlelib", "antigravity", "this", "ntpath", "encodings"])
def test_tests_and_games_stay_outside(docstrings, package):
    assert not [name for name in docstrings if name.split(".")[0] == package]


def test_a_docstring_shared_by_several_objects_is_kept_once(docstrings):
    texts = [" ".join(docstring.split()) for docstring in docstrings.values()]
    assert len(set(texts)) == len(texts)


def test_a_signature_is_no_summary():
    assert split_docstring("f(x) -> int\n\nCounts what there is.") == ["f(x) -> int Counts what there is."]


def test_a_trivial_docstring_gives_no_passage():
    assert split_docstring("See above.") == []


def test_short_paragraphs_are_merged_and_long_ones_cut():
    lines = "\n".join(" ".join(["word"] * 10) for _ in range(32))
    passages = split_docstring(f"What it does, briefly.\n\nOne two.\n\nThree four.\n\n{lines}")
    assert passages[0] == "What it does, briefly."
    assert [len(passage.split()) for passage in passages[1:]] == [4, 150, 150, 20]


def test_questions_are_answered_by_what_this_python_documents():
    documented = {object_name(doc.doc_id) for doc in stdlib_docs()}
    questions = demo_questions()
    assert len(questions) >= 70
    assert len({question.query_id for question in questions}) == len(questions)
    assert all(question.answers and set(question.answers) <= documented for question in questions)


def test_qrels_are_all_passages_of_the_answering_objects():
    qrels = demo_qrels()
    assert {judgment.query_id for judgment in qrels} == {topic.query_id for topic in demo_topics()}
    answering = {doc.doc_id for doc in stdlib_docs() if object_name(doc.doc_id) in held_out_objects()}
    assert {judgment.doc_id for judgment in qrels} == answering
    assert {object_name(judgment.doc_id) for judgment in qrels} == held_out_objects()
    assert len({(judgment.query_id, judgment.doc_id) for judgment in qrels}) == len(qrels)


def test_the_collection_is_written_as_files(tmp_path: Path):
    write_collection(str(tmp_path / "new" / "demo"))
    folder = tmp_path / "new" / "demo"
    rows = [json.loads(line) for line in folder.joinpath("corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["id"], row["contents"]) for row in rows] == stdlib_docs()
    topics = folder.joinpath("topics.tsv").read_text(encoding="utf-8").splitlines()
    assert [tuple(line.split("\t")) for line in topics] == demo_topics()
    qrels = folder.joinpath("qrels.txt").read_text(encoding="utf-8").splitlines()
    assert qrels[0].split() == ["q01", "0", demo_qrels()[0].doc_id, "1"]


def test_a_collection_that_is_there_is_left_alone(tmp_path: Path):
    write_collection(str(tmp_path))
    (tmp_path / "qrels.txt").write_text("q01 0 another 1\n")
    corpus, qrels = (storage.version(str(tmp_path / name)) for name in ("corpus.jsonl", "qrels.txt"))
    write_collection(str(tmp_path))
    assert storage.version(str(tmp_path / "corpus.jsonl")) == corpus
    assert storage.version(str(tmp_path / "qrels.txt")) != qrels


def test_the_collection_is_written_where_a_url_says():
    url = "memory://demo/collection"
    write_collection(url)
    assert storage.sizes_bytes(url).keys() == {"corpus.jsonl", "topics.tsv", "qrels.txt"}
    assert storage.read_bytes(f"{url}/topics.tsv").count(b"\n") == len(demo_topics())
    assert not Path("memory:").exists()

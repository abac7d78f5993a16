import hashlib
import json
from importlib import resources
from pathlib import Path

from beamrank.demo.collection import (
    demo_qrels,
    demo_questions,
    held_out_objects,
    object_name,
    stdlib_docs,
    write_collection,
)
from beamrank.storage import files as storage
from beamrank.storage.digested import file_version


def test_collection_has_the_counts_that_the_docs_report():
    assert (len(stdlib_docs()), len(demo_questions()), len(demo_qrels())) == (8315, 89, 330)
    assert len(held_out_objects()) == 165


def test_docs_have_unique_sorted_ids_and_collapsed_white_space():
    docs = stdlib_docs()
    assert len({doc.doc_id for doc in docs}) == len(docs)
    assert docs == sorted(
        docs, key=lambda doc: (object_name(doc.doc_id), int(doc.doc_id.rsplit(":", 1)[1]))
    )
    assert all(doc.text == " ".join(doc.text.split()) for doc in docs)
    assert not any(set(doc.doc_id) & set(" #\t\n") for doc in docs)


def test_docstring_is_a_summary_and_its_body():
    texts = {
        doc.doc_id: doc.text
        for doc in stdlib_docs()
        if object_name(doc.doc_id) == "textwrap.dedent"
    }
    assert texts["textwrap.dedent:0"] == (
        "textwrap.dedent: Remove any common leading whitespace from every line in `text`."
    )
    assert texts["textwrap.dedent:1"].startswith(
        "textwrap.dedent: This can be used to make triple-quoted strings"
    )


def test_licence_of_the_docstrings_is_shipped():
    licence = (
        resources.files("beamrank.demo").joinpath("LICENSE-PYTHON.txt").read_text(encoding="utf-8")
    )
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in licence


def test_questions_are_answered_by_docs_of_the_collection():
    documented = {object_name(doc.doc_id) for doc in stdlib_docs()}
    questions = demo_questions()
    assert len({question.query_id for question in questions}) == len(questions)
    assert all(question.answers and set(question.answers) <= documented for question in questions)


def test_qrels_are_all_passages_of_the_answering_objects():
    qrels = demo_qrels()
    assert {query_id for query_id, _ in qrels} == {
        question.query_id for question in demo_questions()
    }
    answering = {
        doc.doc_id for doc in stdlib_docs() if object_name(doc.doc_id) in held_out_objects()
    }
    assert {doc_id for _, doc_id in qrels} == answering
    assert len(set(qrels)) == len(qrels)


def test_demo_collection_has_the_digests_of_the_figures(tmp_path: Path):
    folder = tmp_path / "new" / "demo"
    write_collection(str(folder))
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()
    }
    assert digests == {
        "corpus.jsonl": "2df5e84a32f57df89d518838aae4d7d8deb49a125cfe1604ec9bf5dd2e4b657d",
        "topics.tsv": "ad34981e6ef7946825af1f0af7b0995876d1382c21da86eb4e2a25cd35cc4dcc",
        "qrels.txt": "3e60ddc3b37c913da08779dceec4cd91bcd9b914181ff6f56874f003e3ac93e1",
    }
    rows = [
        json.loads(line)
        for line in folder.joinpath("corpus.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [(row["id"], row["contents"]) for row in rows] == stdlib_docs()


def test_collection_that_exists_is_left_alone(tmp_path: Path):
    write_collection(str(tmp_path))
    (tmp_path / "qrels.txt").write_text("q01 0 another 1\n")
    corpus, qrels = (file_version(str(tmp_path / name)) for name in ("corpus.jsonl", "qrels.txt"))
    write_collection(str(tmp_path))
    assert file_version(str(tmp_path / "corpus.jsonl")) == corpus
    assert file_version(str(tmp_path / "qrels.txt")) != qrels


def test_collection_is_written_where_a_url_points():
    url = "memory://demo/collection"
    write_collection(url)
    assert storage.sizes_bytes(url).keys() == {"corpus.jsonl", "topics.tsv", "qrels.txt"}
    assert storage.read_bytes(f"{url}/topics.tsv").count(b"\n") == len(demo_questions())
    assert not Path("memory:").exists()

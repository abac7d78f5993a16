"""Data sets of ir_datasets by their ids: one that is registered here, from local files."""

import pytest

import beamrank
from beamrank.config.load import load_config
from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.files import paths_of
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import read_topics
from beamrank.sources import fetch_part
from pipelines.plan.named_inputs import named_inputs
from tests.support.processes import beamrank_here, succeed
from tests.support.progress import RecordedProgress
from tests.support.runs import trec_lines
from tests.support.small_collection import CANDIDATES, small_cascade
from tests.support.tiers import slow_but
from tests.support.training import write_train_config

# It is an extra: `pip install '.[irds]'`.
ir_datasets = pytest.importorskip("ir_datasets")


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """The small collection as a data set of ir_datasets; the cache is empty."""
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import TrecQrels, TrecScoredDocs, TsvDocs, TsvQueries
    from ir_datasets.util import LocalDownload

    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    collection = small_cascade(tmp_path)
    docs = beamrank_docs(tmp_path / "corpus.jsonl")
    (tmp_path / "docs.tsv").write_text("".join(f"{doc_id}\t{text}\n" for doc_id, text in docs))

    def local(name):
        return LocalDownload(tmp_path / name)

    dataset = Dataset(
        TsvDocs(local("docs.tsv"), namespace="small", lang="en"),
        TsvQueries(local("topics.tsv"), lang="en"),
        TrecQrels(local("qrels.txt"), {1: "relevant"}),
        TrecScoredDocs(local("given.trec")),
    )
    ir_datasets.registry.register("small", dataset)
    yield collection
    ir_datasets.registry._registered.pop("small")


def beamrank_docs(path):
    (unit,) = list_units(CorpusConfig(path=str(path), format="jsonl"))
    return [
        doc for batch in read_unit(unit) for doc in zip(batch.doc_ids, batch.texts, strict=True)
    ]


def test_data_set_gives_all_inputs_of_a_run(tmp_path, registered):
    wanted = beamrank.run(str(registered.path))
    registered.keys |= {
        "corpus": {"path": "irds:small"},
        "topics": {"path": "irds:small"},
        "qrels": "irds:small",
        "candidates": {**registered.keys["candidates"], "run": "irds:small"},
        "output": "of-irds",
    }
    progress = RecordedProgress()
    settings = named_inputs(load_config(str(registered.path)), progress)
    assert beamrank_docs(settings.corpus.path) == beamrank_docs(tmp_path / "corpus.jsonl")
    assert [topic.query_id for topic in read_topics(settings.topics)] == list(registered.topics)
    assert settings.qrels is not None
    assert read_qrels(settings.qrels).relevance == read_qrels(str(tmp_path / "qrels.txt")).relevance
    (run,) = paths_of(settings.cascade[0].section.run)
    assert read_run(run).order == read_run(str(tmp_path / "given.trec")).order
    assert [note for note in progress.notes if note.startswith("exporting")] == [
        f"exporting the {part} of irds:small" for part in ("docs", "queries", "qrels", "scoreddocs")
    ]
    again = RecordedProgress()
    assert named_inputs(load_config(str(registered.path)), again) == settings
    assert not any(note.startswith("exporting") for note in again.notes)
    found = beamrank.run(str(registered.path))
    assert found.measures == wanted.measures


def test_judgments_of_a_data_set_measure_as_their_file_does(tmp_path, registered):
    run = tmp_path / "given.trec"
    turned = {query_id: doc_ids[::-1] for query_id, doc_ids in CANDIDATES.items()}
    (tmp_path / "other.trec").write_text("".join(f"{line}\n" for line in trec_lines(turned)))
    for command in (["eval", run], ["compare", run, tmp_path / "other.trec"]):
        named, wanted = (
            beamrank_here(*command, "--qrels", each)
            for each in ("irds:small", tmp_path / "qrels.txt")
        )
        assert (
            (named.returncode, named.stdout)
            == (wanted.returncode, wanted.stdout)
            == (0, wanted.stdout)
        )
        assert "RR@10" in named.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "notes"), slow_but(1, [([], 1), (["--quiet"], 0)]))
def test_report_notes_the_export_of_judgments_unless_quiet(tmp_path, registered, flags, notes):
    output = beamrank.run(str(registered.path)).output
    done = succeed("report", output, "--qrels", "irds:small", "--trials", "1", *flags)
    assert done.stderr.count("exporting the qrels of irds:small") == notes


@pytest.mark.parametrize(
    "command", [["eval"], ["compare", "given.trec"], ["report"], ["train", "mono"]]
)
def test_unknown_data_set_ends_a_command_before_anything_starts(
    tmp_path, registered, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    if command[0] == "train":
        data = {
            "corpus": {"path": "irds:none/such"},
            "topics": {"path": "topics.tsv"},
            "qrels": "q",
            "run": "r",
        }
        done = beamrank_here(*command, write_train_config(tmp_path, "no-start", data=data))
    else:
        done = beamrank_here(*command, "given.trec", "--qrels", "irds:none/such")
    assert done.returncode == 3
    assert "'none/such'" in done.stderr
    assert not (tmp_path / "out").exists()


def test_fields_of_a_data_set_make_the_text(registered):
    path = fetch_part("irds:small", "docs", RecordedProgress(), ("text", "doc_id"))
    assert all(text.endswith(f" {doc_id}") for doc_id, text in beamrank_docs(path))
    other = fetch_part("irds:small", "docs", RecordedProgress(), ("text", "doc_id"), ("", "\n", ""))
    assert all(text.endswith(f"\n{doc_id}") for doc_id, text in beamrank_docs(other))
    with pytest.raises(PreflightError, match=r"`body`; .*doc_id, text"):
        fetch_part("irds:small", "docs", RecordedProgress(), ("body",))


@pytest.mark.parametrize(
    ("reference", "part", "message"),
    [
        ("irds:none/such", "docs", "'none/such'"),
        ("irds:bare", "qrels", "'bare'"),
    ],
)
def test_data_set_or_part_that_does_not_exist_is_named(registered, reference, part, message):
    from ir_datasets.datasets.base import Dataset

    ir_datasets.registry.register("bare", Dataset())
    try:
        with pytest.raises(PreflightError, match=message):
            fetch_part(reference, part, RecordedProgress())
    finally:
        ir_datasets.registry._registered.pop("bare")

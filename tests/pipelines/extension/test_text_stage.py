"""The stage of examples/plugin, which reads texts and has a checkpoint of its own: it keeps all
that a run promises.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beamrank_overlap.stage import Weights

import beamrank
from beamrank.config.cascade import PLUGINS
from beamrank.errors import PreflightError
from models.stages import corpus_scan
from pipelines.plan.estimate import estimate
from tests.support.plugins import install
from tests.support.processes import beamrank_here, succeed
from tests.support.runs import assert_same_bytes, committed, read_trec, run_bytes, run_here
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection

_MOST_BYTES = 101


def _cut(text: str) -> str:
    return text.encode()[:_MOST_BYTES].decode(errors="ignore")


@pytest.fixture
def collection(tmp_path, monkeypatch) -> SmallCollection:
    """A given run, then the plugin's stage; some docs are longer than is passed on, and some have
    a character there.
    """
    install(tmp_path / "package", monkeypatch, PLUGINS, overlap="beamrank_overlap.stage:Overlap")
    docs = {
        doc: text if int(doc[1:]) % 2 else f"{text[: _MOST_BYTES - 1]:.<100}\u20ac {text}"
        for doc, text in DOCS.items()
    }
    made = SmallCollection(tmp_path, docs).given_run()
    (tmp_path / "weights.json").write_text(json.dumps({"amber": 2.5, "heron": 0.125}))
    made.keys |= {
        "input": {"max_text_bytes": _MOST_BYTES},
        "cascade": [{"overlap": {"weights": "weights.json", "k": 7}}],
    }
    return made


def _status(output: Path) -> dict[str, dict[str, Any]]:
    stages = json.loads(succeed("status", output, "--json").stdout)["stages"]
    return {stage["stage"]: stage for stage in stages}


def _texts(made: SmallCollection) -> dict[str, str]:
    rows = map(json.loads, (made.folder / "corpus.jsonl").read_text().splitlines())
    return {row["id"]: row["contents"] for row in rows}


def test_stage_scores_texts_that_are_cut_at_a_character(collection):
    counted = {stage.stage: stage for stage in estimate(collection.config).stages}
    assert [*counted] == ["retrieve", "texts", "overlap"]
    assert counted["overlap"].inferences == 10 * 7
    run = run_here(collection.path)
    texts = _texts(collection)
    rows = {row["query_id"]: row for row in run.rows("texts")}
    for query_id, docs in CANDIDATES.items():
        row, kept = rows[query_id], [_cut(texts[doc]) for doc in docs[:7]]
        assert (row["query"], row["doc_ids"]) == (TOPICS[query_id], docs[:7])
        assert row["doc_texts"] == kept
        assert row["doc_lengths"] == [len(text.encode()) for text in kept]
    assert {*map(len, map(str.encode, map(_cut, texts.values())))} >= {100, 101}
    manifest = run.plan.seal("texts")
    needed = {doc for docs in CANDIDATES.values() for doc in docs[:7]}
    long = [doc for doc in needed if len(texts[doc].encode()) > _MOST_BYTES]
    assert manifest is not None
    assert manifest.total("truncated_docs") >= len(long) > 0
    weights = Weights.read(str(collection.folder / "weights.json"))
    for row in run.rows("overlap"):
        text = _cut(texts[row["doc_id"]])
        assert row["score"] == np.float32(weights.score(TOPICS[row["query_id"]], text))


def test_stage_has_a_row_of_the_answer(collection):
    output = run_here(collection.path).plan.output
    done = succeed("report", output, "--json", "--no-texts")
    *_, row = json.loads(done.stdout)["runs"][0]["stages"]
    texts = _texts(collection)
    ranked = read_trec(Path(output) / "runs/overlap.trec")
    first = [texts[doc] for docs in ranked.values() for doc in docs[:7]]
    assert (row["run"], row["before"], row["topics"]) == ("overlap", "candidates", len(ranked))
    # A doc that is cut at a character may have two bytes less.
    assert row["first_docs"] == len(first)
    assert row["cut_docs"] == sum(len(text.encode()) >= _MOST_BYTES - 3 for text in first) > 0
    assert row["seconds"] > 0


@pytest.mark.slow
def test_runs_are_the_same_for_runners_and_shards_and_in_memory(collection, tmp_path):
    expected = Path(run_here(collection.path).plan.output)
    for runner in ("local", "embed"):
        made = beamrank.run(str(collection.path), runner=runner, output=tmp_path / runner)
        assert_same_bytes(Path(made.output), expected)
    other = beamrank.run(str(collection.path), output=tmp_path / "seven", set={"shards": 7})
    assert run_bytes(Path(other.output)) == run_bytes(expected)
    collection.keys["input"] = {}
    whole = beamrank.run(str(collection.path), output=tmp_path / "uncut")
    found = beamrank.rerank(
        TOPICS,
        {
            query: {doc: -float(at) for at, doc in enumerate(docs)}
            for query, docs in CANDIDATES.items()
        },
        _texts(collection),
        cascade=[{"overlap": {"weights": str(tmp_path / "weights.json"), "k": 7}}],
    )
    ((name, run),) = found.items()
    assert {query: list(docs) for query, docs in run.items()} == read_trec(Path(whole.runs[name]))


def test_stage_resumes_reuses_and_is_checked(collection, tmp_path):
    whole = Path(run_here(collection.path).plan.output)
    resumed = Path(run_here(collection.path, tmp_path / "resumed").plan.output)
    for stage in ("texts", "overlap"):
        (manifest,) = (resumed / stage).glob("manifest-*.json")
        manifest.unlink()
        sorted((resumed / stage / "receipts").iterdir())[1].unlink()
    run_here(collection.path, resumed)
    assert_same_bytes(resumed, whole)
    for number in range(2):
        done = beamrank_here(
            "run", collection.path, "--only", f"{number}/2", "--output", tmp_path / "only"
        )
        assert done.returncode == 0, done.stderr
    assert_same_bytes(tmp_path / "only", whole)
    assert beamrank_here("verify", whole).returncode == 0
    audited = json.loads(succeed("audit", whole, "--json").stdout)
    assert [stage["stage"] for stage in audited["stages"]] == ["overlap"]
    assert audited["wrong"] == []
    succeed("inspect", whole, "--query", "q0")
    # More docs and shorter texts: the scores of others are known.
    changed = {"overlap.k": 8, "input.max_text_bytes": 90}
    keys = [f"{key}={value}" for key, value in changed.items()]
    fresh = Path(run_here(collection.path, tmp_path / "fresh", keys).plan.output)
    reused = beamrank.run(
        str(collection.path), set=changed, output=tmp_path / "reused", reuse=[str(whole)]
    )
    assert_same_bytes(Path(reused.output), fresh)
    counts = _status(Path(reused.output))["overlap"]
    assert counts["inferences"] + counts["reused"] == 10 * 8
    assert counts["reused"] > 0
    assert counts["inferences"] > 10


def test_stage_combines_its_scores_with_those_before(collection, tmp_path):
    run = run_here(collection.path)
    scored = committed(collection.output)
    own = {(row["query_id"], row["doc_id"]): row["score"] for row in run.rows("overlap")}
    overrides = ["overlap.combine.weight=0.9", "overlap.combine.normalize=none"]
    run_here(collection.path, overrides=overrides)
    assert committed(collection.output) == scored
    run_here(collection.path, tmp_path / "fresh", overrides)
    assert_same_bytes(collection.output, tmp_path / "fresh")
    orders = read_trec(collection.output / "runs/overlap.trec")
    for query_id, docs in CANDIDATES.items():
        mixed = {
            doc: 0.9 * own[query_id, doc] + 0.1 * (18 - place) for place, doc in enumerate(docs[:7])
        }
        assert orders[query_id] == sorted(docs[:7], key=lambda doc: -mixed[doc]) + docs[7:]
    with pytest.raises(PreflightError, match=r"overlap\.combine\.weight"):
        run_here(collection.path, overrides=["overlap.combine.weight=card"])


def test_tokens_and_texts_are_made_by_one_scan(collection, tmp_path, monkeypatch):
    (cascade,) = collection.keys.pop("cascade")
    collection.with_models()
    collection.keys["input"]["max_text_bytes"] = _MOST_BYTES
    later = [{name: collection.keys.pop(name)} for name in ("mono", "duo")]
    collection.keys["cascade"] = [cascade, *later]
    expected = Path(run_here(collection.path).plan.output)
    scans, scan = list[int](), corpus_scan.CorpusScan.scan

    def counted(self: Any, number: int) -> Any:
        scans.append(number)
        return scan(self, number)

    monkeypatch.setattr(corpus_scan.CorpusScan, "scan", counted)
    run_here(collection.path, tmp_path / "again")
    assert scans == [0]
    assert_same_bytes(tmp_path / "again", expected)
    (manifest,) = (tmp_path / "again/texts").glob("manifest-*.json")
    manifest.unlink()
    sorted((tmp_path / "again/texts/receipts").iterdir())[0].unlink()
    run_here(collection.path, tmp_path / "again")
    assert scans == [0, 0]
    assert_same_bytes(tmp_path / "again", expected)

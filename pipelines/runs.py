"""The last stage: rankings of every query out of the sealed parts, written as TREC runs and measured."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from beamrank import storage
from beamrank.aggregation import METHODS
from beamrank.config import RunConfig
from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation import Evaluation, evaluate
from beamrank.merge import bm25_ranking, duo_ranking, mono_ranking
from beamrank.plan import Plan
from beamrank.qrels import read_qrels
from beamrank.receipts import Manifest
from beamrank.runs import RunFormat, read_run
from beamrank.trec import Ranking, run_lines
from pipelines.progress import Talk

RUNS = "runs"
MEASURES = "measures.json"


def run_names(plan: Plan, config: RunConfig) -> list[str]:
    """The runs of a plan, one a stage, in the order of the stages."""
    names = ["candidates" if config.candidates is not None else "bm25"]
    if plan.of_kind("mono"):
        names.append("mono")
    if config.duo is not None:
        names.append(f"duo-{config.duo.aggregation}")
    return names


def write_runs(plan: Plan, config: RunConfig, talk: Talk) -> list[str]:
    """Writes every run of the plan in every format that is asked for; returns their paths."""
    _report_counts(plan, talk)
    return [
        _write(plan, config, name, run_format, k1=None)
        for name in run_names(plan, config)
        for run_format in config.run_formats
    ]


def write_aggregation(plan: Plan, config: RunConfig, aggregation: str, k1: int | None) -> str:
    """Writes the run of another aggregation, or of a smaller k1, from the stored log-odds."""
    if aggregation not in METHODS:
        raise ConfigError(f"there is no aggregation {aggregation!r}: give one of {', '.join(METHODS)}")
    return _write(plan, config, f"duo-{aggregation}", "trec", k1)


def evaluate_runs(plan: Plan, config: RunConfig, talk: Talk) -> dict[str, Evaluation]:
    """Measures every run and leaves the figures beside them."""
    assert config.qrels is not None
    qrels = read_qrels(config.qrels)
    topics = {topic.query_id for topic in plan.topics}
    found = {}
    for name in run_names(plan, config):
        found[name] = evaluate(read_run(_url(plan, name, "trec")), qrels, config.measures, topics)
    for note in next(iter(found.values())).notes:
        talk.note(note)
    means = {name: evaluation.means for name, evaluation in found.items()}
    storage.replace(storage.join(plan.output, RUNS, MEASURES), json.dumps(means, indent=1).encode())
    return found


def _url(plan: Plan, name: str, run_format: RunFormat, k1: int | None = None) -> str:
    depth = "" if k1 is None else f"-k{k1}"
    return storage.join(plan.output, RUNS, f"{name}{depth}.{'trec' if run_format == 'trec' else 'msmarco.tsv'}")


def _write(plan: Plan, config: RunConfig, name: str, run_format: RunFormat, k1: int | None) -> str:
    """One run, topic by topic in the topics' order; memory holds one shard's rankings and a number a topic."""
    url = _url(plan, name, run_format, k1)
    manifests = {stage.kind: _sealed(plan, stage.name) for stage in plan.stages if stage.kind != "tokenize"}
    with tempfile.TemporaryFile() as spool:
        places: dict[str, tuple[int, int]] = {}
        for shard in plan.shards:
            rankings = _rankings(plan, manifests, shard.index, name, k1)
            for query_id in rankings:
                places[query_id] = _append(spool, run_lines(query_id, rankings[query_id], config.run_tag, run_format))
        storage.replace_stream(url, _in_order(spool, sorted(places), places))
    return url


def _append(spool: BinaryIO, lines: Iterator[str]) -> tuple[int, int]:
    start = spool.tell()
    spool.write("".join(f"{line}\n" for line in lines).encode())
    return start, spool.tell() - start


def _in_order(spool: BinaryIO, query_ids: Sequence[str], places: dict[str, tuple[int, int]]) -> Iterator[bytes]:
    for query_id in query_ids:
        start, length = places[query_id]
        spool.seek(start)
        yield spool.read(length)


def _sealed(plan: Plan, name: str) -> Manifest:
    manifest = plan.sealed(name)
    if manifest is None:
        raise PreflightError(f"{name} is not finished under {plan.output}: `beamrank status` says how far it is")
    return manifest


def _rankings(plan: Plan, manifests: dict[str, Manifest], shard: int, name: str, k1: int | None) -> dict[str, Ranking]:
    parts = {
        kind: plan.folder(manifest.stage).read_part(manifest.receipts[shard])
        for kind, manifest in manifests.items()
        if kind == "retrieve" or (kind == "mono" and name != "bm25") or (kind == "duo" and name.startswith("duo"))
    }
    if name in ("bm25", "candidates"):
        return dict(bm25_ranking(parts["retrieve"]))
    if name == "mono":
        return dict(mono_ranking(parts["retrieve"], parts["mono"]))
    return dict(duo_ranking(parts["retrieve"], parts["mono"], parts["duo"], name.removeprefix("duo-"), k1))


_REPORTED = {
    "topics_without_candidates": "topics have no candidates: they keep their place but have no run lines",
    "missing_docs": "candidate docs are not in the corpus: dropped (on_missing_doc: drop)",
    "truncated_queries": "queries were truncated",
    "truncated_docs": "docs were truncated",
    "halvings": "batches were halved for want of memory: scores of those shards may differ in the last digits",
}


def _report_counts(plan: Plan, talk: Talk) -> None:
    """Says what the receipts counted, so that nothing is lost silently."""
    for stage in plan.stages:
        manifest = _sealed(plan, stage.name)
        for count, text in _REPORTED.items():
            total = manifest.total(count)
            if total:
                talk.note(f"{stage.name}: {total:,} {text}")

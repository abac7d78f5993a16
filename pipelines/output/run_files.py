"""The last stage: rankings of every query out of the sealed parts, written as TREC runs and measured."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Literal

import pyarrow as pa

from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.evaluation.evaluate import Evaluation, evaluate
from beamrank.evaluation.measures import explain_names
from beamrank.formats.qrels import read_qrels
from beamrank.formats.run_writer import run_lines
from beamrank.formats.runs import RunFormat
from beamrank.ranking.rankings import Ranking, bm25_ranking, duo_ranking, mono_ranking, restrict_duo, sample_duo
from beamrank.ranking.segments import SegmentPooling, pool_segments
from beamrank.stages.plan import Plan, StageSpec
from beamrank.stages.receipts import Manifest
from beamrank.storage import files as storage
from pipelines.console.counts import count_lines
from pipelines.console.progress import ConsoleProgress, counted
from pipelines.output.owner import check_current

RUNS = "runs"
MEASURES = "measures.json"
RUN_ENDINGS: dict[RunFormat, str] = {"trec": "trec", "msmarco": "msmarco.tsv"}


@dataclass(frozen=True)
class RunFile:
    """One run to write: whose ranking it is, and for duo's which aggregation over which of the stored pairs."""

    stage: Literal["candidates", "bm25", "mono", "duo"]
    aggregation: str = "sum"
    k1: int | None = None
    opponents: int | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """The file's name, less its ending."""
        if self.stage != "duo":
            return self.stage
        depth = "" if self.k1 is None else f"-k{self.k1}"
        sample = "" if self.opponents is None else f"-m{self.opponents}-s{self.seed}"
        return f"duo-{self.aggregation}{depth}{sample}"

    def base(self, run_format: RunFormat) -> str:
        """The file's name."""
        return f"{self.name}.{RUN_ENDINGS[run_format]}"


def run_files(plan: Plan, config: RunConfig) -> list[RunFile]:
    """The runs of a plan, one a stage, in the order of the stages."""
    files = [RunFile("candidates" if config.candidates is not None else "bm25")]
    if plan.of_kind("mono"):
        files.append(RunFile("mono"))
    if config.duo is not None:
        files.append(RunFile("duo", config.duo.aggregation))
    return files


def write_runs(plan: Plan, config: RunConfig, talk: ConsoleProgress) -> list[str]:
    """Writes every run of the plan in every format that is asked for; returns their paths.

    Raises:
        PreflightError: stages are not finished; it names them, how to run them and how to do without them.
    """
    for stage, manifest in _all_sealed(plan):
        for line in count_lines(stage.kind, manifest):
            talk.note(line)
    return [
        write_run_file(plan, config, file, run_format)
        for file in run_files(plan, config)
        for run_format in config.run_formats
    ]


def evaluate_runs(plan: Plan, config: RunConfig, talk: ConsoleProgress) -> dict[str, Evaluation]:
    """Measures every run and leaves the figures beside them."""
    found = measure_runs(plan, config)
    notes = next(iter(found.values())).notes
    for note in (*explain_names(config.measures), *notes.lines()):
        talk.note(note)
    if plan.limited:
        talk.note(
            f"a trial: the measures are means over the {counted(notes.topics, 'judged topic')} among the "
            f"{len(plan.topics):,} that were run (topics.limit), not over all topics of the qrels"
        )
    check_current(plan)
    storage.replace(storage.join(plan.output, RUNS, MEASURES), measures_content(found))
    return found


def measure_runs(plan: Plan, config: RunConfig) -> dict[str, Evaluation]:
    """Measures every run of the plan."""
    assert config.qrels is not None
    qrels = read_qrels(config.qrels)
    topics = {topic.query_id for topic in plan.topics}
    if plan.limited:
        qrels = qrels.of_topics(topics)
    return {
        file.name: evaluate(_orders(plan, config, file), qrels, config.measures, topics)
        for file in run_files(plan, config)
    }


def measures_content(found: dict[str, Evaluation]) -> bytes:
    """The means as a file."""
    return json.dumps({name: evaluation.means for name, evaluation in found.items()}, indent=1).encode()


def _orders(plan: Plan, config: RunConfig, file: RunFile) -> Iterator[tuple[str, list[str]]]:
    """The order in which the written run is read: scores decrease strictly, so it is the rankings' own."""
    for query_id, ranking in read_rankings(plan, config, file):
        yield query_id, [doc_id for doc_id, _ in ranking]


def read_rankings(plan: Plan, config: RunConfig, file: RunFile) -> Iterator[tuple[str, Ranking]]:
    """Each query's ranking, from the sealed parts, one shard after the other.

    Raises:
        PreflightError: a stage is not finished.
    """
    manifests, pooling = _manifests(plan, file), _pooling(config)
    for shard in plan.shards:
        yield from _rankings(plan, manifests, shard.index, file, pooling).items()


def write_run_file(plan: Plan, config: RunConfig, file: RunFile, run_format: RunFormat = "trec") -> str:
    """Writes one run; returns its path."""
    url = storage.join(plan.output, RUNS, file.base(run_format))
    with run_content(plan, config, file, run_format) as chunks:
        check_current(plan)
        storage.replace_stream(url, chunks)
    return url


@contextmanager
def run_content(plan: Plan, config: RunConfig, file: RunFile, run_format: RunFormat) -> Iterator[Iterator[bytes]]:
    """One run, queries sorted by id, in pieces; memory holds one shard's rankings and two numbers a topic."""
    with tempfile.TemporaryFile() as spool:
        places: dict[str, tuple[int, int]] = {}
        for query_id, ranking in read_rankings(plan, config, file):
            places[query_id] = _append(spool, run_lines(query_id, ranking, config.run_tag, run_format))
        yield _in_order(spool, sorted(places), places)


def _append(spool: BinaryIO, lines: Iterator[str]) -> tuple[int, int]:
    start = spool.tell()
    spool.write("".join(f"{line}\n" for line in lines).encode())
    return start, spool.tell() - start


def _in_order(spool: BinaryIO, query_ids: Sequence[str], places: dict[str, tuple[int, int]]) -> Iterator[bytes]:
    for query_id in query_ids:
        start, length = places[query_id]
        spool.seek(start)
        yield spool.read(length)


def _manifests(plan: Plan, file: RunFile) -> dict[str, Manifest]:
    """The sealed stages that a run is made from."""
    kinds = {"candidates": 1, "bm25": 1, "mono": 2, "duo": 3}[file.stage]
    stages = [stage for stage in plan.stages if stage.kind != "tokenize"][:kinds]
    return {stage.kind: _sealed(plan, stage.name) for stage in stages}


def _sealed(plan: Plan, name: str) -> Manifest:
    manifest = plan.sealed(name)
    if manifest is None:
        raise PreflightError(f"{name} is not finished under {plan.output}: `beamrank status` says how far it is")
    return manifest


def _all_sealed(plan: Plan) -> list[tuple[StageSpec, Manifest]]:
    """Every stage with its manifest."""
    found = [(stage, plan.sealed(stage.name)) for stage in plan.stages]
    missing = [stage for stage, manifest in found if manifest is None]
    if missing:
        raise PreflightError(_unfinished(plan, missing))
    return [(stage, manifest) for stage, manifest in found if manifest is not None]


def _unfinished(plan: Plan, missing: Sequence[StageSpec]) -> str:
    """Which stages the runs lack, and the two ways on: to run them, or to leave them out."""
    kinds = dict.fromkeys(stage.kind for stage in missing)
    message = (
        f"{', '.join(stage.name for stage in missing)} {'is' if len(missing) == 1 else 'are'} not finished under "
        f"{plan.output}, and the runs are written from all stages of the configuration. Run what is missing: with "
        f"{', then '.join(f'--stage {kind}' for kind in kinds)}, or everything without --stage"
    )
    optional = [kind for kind in ("duo", "mono") if kind in kinds]
    if not optional:
        return message
    last = "mono" if optional == ["duo"] else "BM25" if "index" in plan.stage("retrieve").places else "the given run"
    return (
        f"{message}. To stop after {last}, leave {' and '.join(f'`{kind}`' for kind in optional)} out of the "
        f"configuration ({' '.join(f'--set {kind}=null' for kind in optional)})"
    )


def _rankings(
    plan: Plan, manifests: dict[str, Manifest], shard: int, file: RunFile, pooling: SegmentPooling
) -> dict[str, Ranking]:
    parts = [plan.folder(each.stage).read_part(each.receipts[shard]) for each in manifests.values()]
    if len(parts) == 1:
        return bm25_ranking(parts[0])
    if plan.of_kind("tokenize")[0].keys["on_missing_doc"] == "drop":
        parts[0] = without_dropped(parts[0], parts[1], plan.stage("mono").keys["k"])
    parts[1] = pool_segments(parts[1], pooling)
    if len(parts) == 2:
        return mono_ranking(parts[0], parts[1])
    duo = parts[2] if file.k1 is None else restrict_duo(parts[2], file.k1)
    if file.opponents is not None:
        duo = sample_duo(duo, file.opponents, file.seed)
    return duo_ranking(parts[0], parts[1], duo, file.aggregation)


def _pooling(config: RunConfig) -> SegmentPooling:
    return "max" if config.mono is None else config.mono.pooling


def without_dropped(candidates: pa.Table, mono: pa.Table, k: int) -> pa.Table:
    """The candidates less those that mono was to score but whose doc the corpus lacks (on_missing_doc: drop)."""
    scored = set(zip(mono["query_id"].to_pylist(), mono["doc_id"].to_pylist(), strict=True))
    rows = zip(*(candidates[name].to_pylist() for name in ("query_id", "doc_id", "rank")), strict=True)
    return candidates.filter(
        pa.array([rank > k or (query_id, doc_id) in scored for query_id, doc_id, rank in rows], pa.bool_())
    )

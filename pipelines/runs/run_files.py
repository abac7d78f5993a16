"""The last stage: the files in `runs/`, written from the sealed parts and measured in the same
pass.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.commit.listing import MEASURES, PER_QUERY, RUNS, VALUES
from beamrank.commit.owner import check_current
from beamrank.commit.parts import ShardParts, iter_shards, sealed_stages
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.commit.stage import Stage
from beamrank.config.run import RunConfig
from beamrank.evaluation.evaluate import Evaluation, Evaluator
from beamrank.evaluation.measures import explain_names
from beamrank.formats.files import hash_files, shown_paths
from beamrank.formats.qrels import Qrels
from beamrank.notes import SILENT, Progress, counted, first_few
from beamrank.report.runs import read_judgments
from beamrank.report.stage_rows import StageReader
from beamrank.storage import files as storage
from models.stages.core import open_stages
from pipelines.console.tables import count_lines
from pipelines.runs.run_file import (
    PartFolder,
    RunFile,
    RunSpool,
    ShardWriter,
    run_files,
)
from pipelines.runs.run_metadata import write_run_metadata

Evaluators: TypeAlias = Mapping[RunFile, Evaluator]
WriteParts: TypeAlias = Callable[[ShardWriter, Mapping[str, Manifest]], None]
# The values of more topics are a table: JSON of millions of them would have to be read whole.
MOST_IN_JSON = 100_000
PER_QUERY_TABLE = pa.schema(
    {"query_id": pa.string(), "run": pa.string(), "measure": pa.string(), "value": pa.float64()},
    metadata={"beamrank.schema": "per_query/1"},
)


def write_runs(
    plan: Plan,
    config: RunConfig,
    progress: Progress = SILENT,
    write_parts: WriteParts | None = None,
) -> tuple[dict[RunFile, str], dict[str, Evaluation], StageReader]:
    """Writes every run of a plan in every format that its configuration asks for, and their
    measures; returns the path of each run, the measures of each by its name, none without qrels,
    and what counted the stages.

    `write_parts` lets workers write the parts of folders; by default this process does. Raises
    PreflightError where stages are not finished: see `sealed_stages`.
    """
    manifests, stages = sealed_stages(plan), open_stages(plan.stages)
    for manifest in manifests.values():
        for line in count_lines(manifest):
            progress.note(line)
    files = run_files(stages, config)
    judged = {} if config.judgments is None else hash_files(config.judgments)
    qrels = read_judgments(plan, config)
    evaluators = run_evaluators(config, files, qrels)
    ranking = [stage for stage in stages if stage.ranks]
    reader = StageReader(plan, ranking, {} if qrels is None else qrels.relevance)
    common = (plan, config, files, stages, manifests)
    paths = write_run_files(*common, evaluators, write_parts, reader)
    evaluations = finish_evaluations(plan, evaluators)
    if evaluations:
        _note_evaluations(plan, config, evaluations, progress)
        check_current(plan)
        if judged != plan.qrels:
            replace(plan, qrels=judged).write()
        for name, content in measure_files(evaluations).items():
            url = storage.join(plan.output, RUNS, name)
            if content is None:
                storage.remove(url)
            else:
                storage.replace(url, content)
    # A launcher that was suspended between a look and its put has replaced a run of another plan.
    check_current(plan)
    return paths, evaluations, reader


def write_run_files(
    plan: Plan,
    config: RunConfig,
    files: Sequence[RunFile],
    stages: Sequence[Stage],
    manifests: Mapping[str, Manifest],
    evaluators: Evaluators = MappingProxyType({}),
    write_parts: WriteParts | None = None,
    reader: StageReader | None = None,
) -> dict[RunFile, str]:
    """Writes some runs with their metadata, lets evaluators see the runs that they measure and the
    reader all parts, and returns the paths of the runs.
    """
    check_places(plan, [file.folder(plan) for file in files])
    storage.own_folder(plan.output, RUNS)
    writer = None
    if in_parts := [file for file in files if file.in_parts]:
        writer = _begin_folders(plan, in_parts, stages)
        if write_parts is not None:
            write_parts(writer, manifests)
    with ExitStack() as stack:
        spools = {
            file: stack.enter_context(RunSpool(file, plan.run_tag))
            for file in files
            if not file.in_parts
        }
        for parts in iter_shards(plan, stages, manifests):
            for spool in spools.values():
                spool.add(parts)
            if writer is not None and write_parts is None:
                writer.write(parts)
            evaluate_shard(parts, evaluators)
            if reader is not None:
                reader.add(parts)
        if writer is not None:
            _end_folders(plan, writer, stages, manifests)
        for file, spool in spools.items():
            check_current(plan)
            file.folder(plan).remove()
            storage.replace_stream(file.url(plan), spool.chunks())
        for file in files:
            write_run_metadata(plan, config, file, stages, manifests[file.stage])
    return {file: file.url(plan) for file in files}


def _begin_folders(plan: Plan, files: Sequence[RunFile], stages: Sequence[Stage]) -> ShardWriter:
    """Begins the folders of runs in parts."""
    ranking = tuple(stage for stage in stages if stage.ranks)
    folders = tuple((file, file.folder(plan)) for file in files)
    for _, folder in folders:
        check_current(plan)
        folder.begin()
    return ShardWriter(ranking, folders, plan.run_tag)


def _end_folders(
    plan: Plan, writer: ShardWriter, stages: Sequence[Stage], manifests: Mapping[str, Manifest]
) -> None:
    # Another process may have removed parts.
    missing = {shard for folder in writer.folders for shard in folder.missing()}
    for parts in iter_shards(plan, stages, manifests) if missing else ():
        if parts.shard in missing:
            writer.write(parts)
    for folder in writer.folders:
        check_current(plan)
        folder.seal()


def check_places(plan: Plan, folders: Iterable[PartFolder]) -> None:
    """Raises PreflightError where a run, or the scores, would replace a folder that is not all
    ours.
    """
    # A link is replaced, and what is behind it stays.
    if not storage.is_link(storage.join(plan.output, RUNS)):
        for folder in folders:
            folder.written_names()


def run_evaluators(config: RunConfig, files: Sequence[RunFile], qrels: Qrels | None) -> Evaluators:
    """The evaluator of each run of `run_files`, in any format; none without judgments."""
    if qrels is None:
        return {}
    # Formats of one run are side by side: its first one is measured.
    return {file: Evaluator(qrels, config.measures) for file in files[:: len(config.run_formats)]}


def warn_of_candidates(
    plan: Plan, config: RunConfig, first: Stage, manifest: Manifest, progress: Progress
) -> None:
    """Warns before the scoring where no candidate of the sealed `first` stage is judged."""
    qrels = read_judgments(plan, config)
    if config.judgments is None or qrels is None:
        return
    relevance = qrels.relevance
    queries = plan.topics.those_of(relevance)
    for parts in iter_shards(plan, [first], {first.name: manifest}, queries):
        for query_id, ranking in parts.rankings(first.name).items():
            if not relevance[query_id].keys().isdisjoint(ranking.doc_ids):
                return
    query_id = min(queries)
    progress.warn(
        f"no doc that {shown_paths(config.judgments)} judges is a candidate: every measure will be "
        f"0. Of topic {query_id!r} these are judged: {first_few(relevance[query_id])}. Give the "
        "qrels of this corpus"
    )


def evaluate_shard(parts: ShardParts, evaluators: Evaluators) -> None:
    """Lets evaluators see the rankings of a shard: a written run is read in this order, as its
    scores decrease.
    """
    for file, evaluator in evaluators.items():
        evaluator.add(
            (query_id, ranking.doc_ids) for query_id, ranking in file.rankings(parts).items()
        )


def finish_evaluations(plan: Plan, evaluators: Evaluators) -> dict[str, Evaluation]:
    """The measures of each run, by its name; the same however its topics were cut into shards."""
    topics = plan.topics.query_ids
    return {
        file.name: evaluator.evaluation(topics, by_id=True)
        for file, evaluator in evaluators.items()
    }


def _note_evaluations(
    plan: Plan, config: RunConfig, evaluations: Mapping[str, Evaluation], progress: Progress
) -> None:
    notes = next(iter(evaluations.values())).notes
    for note in (*explain_names(config.measures), *notes.lines()):
        progress.note(note)
    # All runs have the same topics.
    for warning in notes.warnings:
        progress.warn(warning)
    if plan.limited:
        progress.note(
            f"a trial: the measures are means over the {counted(notes.topics, 'judged topic')} "
            f"among the {len(plan.topics):,} that were run (topics.limit), not over all topics of "
            "the qrels"
        )


def measure_files(evaluations: Mapping[str, Evaluation]) -> dict[str, bytes | None]:
    """The content of both files by name; values of many topics are a table, else it is None: there
    is no such file.
    """
    means: dict[str, Any] = {name: evaluation.means for name, evaluation in evaluations.items()}
    table = None
    if any(len(evaluation.per_query) > MOST_IN_JSON for evaluation in evaluations.values()):
        table = _values_table(evaluations)
    else:
        means[VALUES] = {
            name: dict(evaluation.per_query.items()) for name, evaluation in evaluations.items()
        }
    return {PER_QUERY: table, MEASURES: json.dumps(means, indent=1).encode()}


def _values_table(evaluations: Mapping[str, Evaluation]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, PER_QUERY_TABLE, compression="zstd") as writer:
        for group in _groups(evaluations):
            writer.write_table(group, len(group))
    return sink.getvalue()


def _groups(evaluations: Mapping[str, Evaluation]) -> Iterator[Any]:
    """The table, a row group for each run and measure, in the order of the topics."""
    for run, evaluation in evaluations.items():
        values = evaluation.per_query
        order = pa.array(values.order)
        query_ids = values.ids.take(order)
        for name in evaluation.means:
            names = (pa.repeat(pa.scalar(label, pa.string()), len(order)) for label in (run, name))
            yield pa.table(
                [query_ids, *names, pa.array(values.of(name)).take(order)], schema=PER_QUERY_TABLE
            )

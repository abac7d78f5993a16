"""The last stage: the files in `runs/`, written from the sealed parts and measured in the same
pass; and their checks.

To verify a run, it is made again from the sealed parts, and compared.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.commit.check import Finding, Verification
from beamrank.commit.listing import MEASURES, PER_QUERY, RUNS, VALUES
from beamrank.commit.owner import check_current
from beamrank.commit.parts import ShardParts, iter_shards, sealed_stages
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, StageFolder
from beamrank.commit.stage import Stage
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, ReceiptError
from beamrank.evaluation.evaluate import Evaluation, Evaluator
from beamrank.evaluation.measures import explain_names
from beamrank.formats.files import hash_files, shown_paths
from beamrank.formats.qrels import read_qrels
from beamrank.notes import SILENT, Progress, counted, first_few
from beamrank.storage import files as storage
from beamrank.storage.documents import sha256
from models.stages.core import open_stages
from pipelines.console.tables import count_lines
from pipelines.runs.run_file import (
    PartFolder,
    RunFile,
    RunSpool,
    ShardWriter,
    parse_run_file,
    run_files,
)
from pipelines.runs.run_metadata import ENDING, is_unchanged, write_run_metadata

Evaluators: TypeAlias = Mapping[RunFile, Evaluator]
WriteParts: TypeAlias = Callable[[ShardWriter, Mapping[str, Manifest]], None]
# The values of more topics are a table: JSON of millions of them would have to be read whole.
MOST_IN_JSON = 100_000
PER_QUERY_TABLE = pa.schema(
    {"query_id": pa.string(), "run": pa.string(), "measure": pa.string(), "value": pa.float64()},
    metadata={"beamrank.schema": "per_query/1"},
)
_WRITE_AGAIN = "`beamrank run CONFIG --stage runs` writes it again"
_AGGREGATE_AGAIN = "`beamrank aggregate` writes it again"
_DELETE_OR_AGGREGATE = f"{_AGGREGATE_AGAIN}; delete it if you do not need it"


class WrittenRuns(NamedTuple):
    """The path of each run, and the measures of each by its name; none without qrels."""

    paths: dict[RunFile, str]
    evaluations: dict[str, Evaluation]


def write_runs(
    plan: Plan,
    config: RunConfig,
    progress: Progress = SILENT,
    write_parts: WriteParts | None = None,
) -> WrittenRuns:
    """Writes every run of a plan in every format that its configuration asks for, and their
    measures.

    `write_parts` lets workers write the parts of folders; by default this process does. Raises
    PreflightError where stages are not finished: see `sealed_stages`.
    """
    manifests, stages = sealed_stages(plan), open_stages(plan.stages)
    for manifest in manifests.values():
        for line in count_lines(manifest):
            progress.note(line)
    files = run_files(stages, config)
    judged = {} if config.judgments is None else hash_files(config.judgments)
    evaluators = run_evaluators(plan, config, files)
    paths = write_run_files(plan, config, files, stages, manifests, evaluators, write_parts)
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
    return WrittenRuns(paths, evaluations)


def write_run_files(
    plan: Plan,
    config: RunConfig,
    files: Sequence[RunFile],
    stages: Sequence[Stage],
    manifests: Mapping[str, Manifest],
    evaluators: Evaluators = MappingProxyType({}),
    write_parts: WriteParts | None = None,
) -> dict[RunFile, str]:
    """Writes some runs with their metadata, lets evaluators see those that they measure, and
    returns their paths.
    """
    urls = {file: file.url(plan) for file in files}
    check_places(plan, [file.folder(plan) for file in files])
    storage.own_folder(plan.output, RUNS)
    folders = {file: file.folder(plan) for file in files if file.in_parts}
    writer = ShardWriter(
        tuple(stage for stage in stages if stage.ranks), tuple(folders.items()), config.run_tag
    )
    for folder in folders.values():
        check_current(plan)
        folder.begin()
    if folders and write_parts is not None:
        write_parts(writer, manifests)
    written = writer.done()
    with ExitStack() as stack:
        spools = {
            file: stack.enter_context(RunSpool(file, config.run_tag))
            for file in files
            if not file.in_parts
        }
        for parts in iter_shards(plan, stages, manifests):
            for spool in spools.values():
                spool.add(parts)
            if parts.shard not in written:
                writer.write(parts)
            evaluate_shard(parts, evaluators)
        # Another process may have begun to write the same runs again, and removed parts.
        written = writer.done()
        for parts in iter_shards(plan, stages, manifests) if folders else ():
            if parts.shard not in written:
                writer.write(parts)
        for file, url in urls.items():
            check_current(plan)
            if file in folders:
                folders[file].seal()
            else:
                file.folder(plan).remove()
                storage.replace_stream(url, spools[file].chunks())
            write_run_metadata(plan, config, file, stages, manifests[file.stage])
    return urls


def check_places(plan: Plan, folders: Iterable[PartFolder]) -> None:
    """Raises PreflightError where a run, or the scores, would replace a folder that is not all
    ours.
    """
    # A link is replaced, and what is behind it stays.
    if not storage.is_link(storage.join(plan.output, RUNS)):
        for folder in folders:
            folder.own()


def run_evaluators(plan: Plan, config: RunConfig, files: Sequence[RunFile]) -> Evaluators:
    """The evaluator of each run of `run_files`, in any format; none where nothing is evaluated."""
    if config.judgments is None:
        return {}
    qrels = read_qrels(config.judgments, rejects=config.max_bad_rows.rejects("qrels"))
    if plan.limited:
        qrels = qrels.of_topics(plan.topics.those_of(qrels.relevance))
    # Formats of one run are side by side: its first one is measured.
    return {file: Evaluator(qrels, config.measures) for file in files[:: len(config.run_formats)]}


def warn_of_candidates(
    plan: Plan, config: RunConfig, first: Stage, manifest: Manifest, progress: Progress
) -> None:
    """Warns before the scoring where no candidate of the sealed `first` stage is judged."""
    if config.judgments is None:
        return
    rejects = config.max_bad_rows.rejects("qrels")
    relevance = read_qrels(config.judgments, rejects=rejects).relevance
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
        evaluator.add((query_id, each.doc_ids) for query_id, each in file.rankings(parts).items())


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
    means: dict[str, Any] = {name: each.means for name, each in evaluations.items()}
    table = None
    if any(len(each.per_query) > MOST_IN_JSON for each in evaluations.values()):
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, PER_QUERY_TABLE, compression="zstd") as writer:
            for group in _groups(evaluations):
                writer.write_table(group, len(group))
        table = sink.getvalue()
    else:
        means[VALUES] = {name: dict(each.per_query.items()) for name, each in evaluations.items()}
    return {PER_QUERY: table, MEASURES: json.dumps(means, indent=1).encode()}


def _groups(evaluations: Mapping[str, Evaluation]) -> Iterator[Any]:
    """The table, a row group for each run and measure, in the order of the topics."""
    for run, each in evaluations.items():
        values = each.per_query
        order = pa.array(values.order)
        query_ids = values.ids.take(order)
        for name in each.means:
            names = (pa.repeat(pa.scalar(label, pa.string()), len(order)) for label in (run, name))
            yield pa.table(
                [query_ids, *names, pa.array(values.of(name)).take(order)], schema=PER_QUERY_TABLE
            )


def verify_runs(
    plan: Plan, stages: Sequence[Stage], config: RunConfig, found: Verification
) -> None:
    """Adds the findings about the runs and their measures, which are written from sealed stages."""
    manifests = plan.manifests(StageFolder.stated)
    unknown = [stage.name for stage in plan.stages if stage.name not in manifests]
    if unknown:
        damaged = any(finding.file.partition("/")[0] in unknown for finding in found.findings)
        why = "receipts and manifests are damaged" if damaged else "the run is not finished"
        found.notes.append(f"{why} ({', '.join(unknown)}): its runs were not checked")
        return
    here = storage.join(plan.output, RUNS)
    sizes, folders = storage.sizes_bytes(here), storage.folder_names(here)
    own = {file.base: file for file in run_files(stages, config)}
    missing = sorted(
        base for base, file in own.items() if base not in (folders if file.in_parts else sizes)
    )
    if len(missing) == len(own):
        found.notes.append(
            f"the runs are not written yet: {_WRITE_AGAIN.replace('it again', 'them')}"
        )
    else:
        if config.judgments is not None and MEASURES not in sizes:
            missing.append(MEASURES)
        found.findings += [
            Finding(f"{RUNS}/{base}", "is missing", _WRITE_AGAIN) for base in missing
        ]
    metadata = {f"{base}{ENDING}" for base in {*sizes, *folders}} & sizes.keys()
    ours = []
    for base in sorted((sizes.keys() | folders) - metadata - {MEASURES, PER_QUERY}):
        file = own.get(base) or parse_run_file(stages, base, base in folders)
        if file is None or file.in_parts != (base in folders):
            found.notes.append(
                f"not checked: {RUNS}/{base}, which is not a run of the current plan"
            )
        else:
            ours.append(file)
    evaluators = _evaluators(plan, config, list(own.values()), found) if MEASURES in sizes else {}
    _verify_files(
        plan, stages, manifests, {file: file.base in own for file in ours}, evaluators, found
    )
    for base in sorted({*metadata, *(f"{file.base}{ENDING}" for file in ours)}):
        run = base.removesuffix(ENDING)
        is_own = run in own
        if base not in sizes:
            remedy = _WRITE_AGAIN if is_own else _AGGREGATE_AGAIN
            found.findings.append(Finding(f"{RUNS}/{base}", "is missing", remedy))
        # What they hold depends on the machine that wrote them.
        elif not is_unchanged(storage.read_bytes(storage.join(here, base)), run):
            remedy = _WRITE_AGAIN if is_own else _DELETE_OR_AGGREGATE
            found.findings.append(
                Finding(f"{RUNS}/{base}", "was changed after it was written", remedy)
            )
    in_one = [file.base for file in ours if not file.in_parts]
    found.count(
        [sizes[base] for base in (*in_one, *metadata, *({MEASURES, PER_QUERY} & sizes.keys()))]
    )


def _evaluators(
    plan: Plan, config: RunConfig, files: Sequence[RunFile], found: Verification
) -> Evaluators:
    if config.judgments is None:
        found.notes.append(
            f"not checked: {RUNS}/{MEASURES}, as the current plan has no qrels or no measures"
        )
    try:
        return run_evaluators(plan, config, files)
    except (BeamrankError, OSError) as error:
        found.notes.append(f"not checked: {RUNS}/{MEASURES}: {error}")
        return {}


def _verify_files(
    plan: Plan,
    stages: Sequence[Stage],
    manifests: Mapping[str, Manifest],
    files: Mapping[RunFile, bool],
    evaluators: Evaluators,
    found: Verification,
) -> None:
    """Makes runs again, and compares them with the files; notes those whose parts are damaged.

    `files` tells of each whether it is one of the configuration.
    """
    failed: dict[RunFile, BeamrankError] = {}
    hashes: dict[RunFile, dict[int, str]] = {file: {} for file in files if file.in_parts}
    with ExitStack() as stack:
        spools = {
            file: stack.enter_context(RunSpool(file, plan.run_tag))
            for file in files
            if not file.in_parts
        }

        def see(file: RunFile, parts: ShardParts) -> None:
            if file in spools:
                spools[file].add(parts)
            else:
                hashes[file][parts.shard] = sha256(file.part(parts, plan.run_tag))

        for parts in iter_shards(plan, stages, manifests) if files or evaluators else ():
            for file in files:
                try:
                    see(file, parts)
                except BeamrankError as error:
                    failed[file] = error
            if not failed:
                evaluate_shard(parts, evaluators)
        for file, is_own in files.items():
            name, remedy = f"{RUNS}/{file.base}", _WRITE_AGAIN if is_own else _DELETE_OR_AGGREGATE
            if file in hashes:
                verify_parts(file.folder(plan), hashes[file], remedy, found)
            if isinstance(failed.get(file), ReceiptError):
                found.notes.append(f"not checked: {name}, which is made from a damaged part")
            elif file in failed:
                problem = f"cannot be made from the sealed stages ({failed[file]})"
                found.findings.append(Finding(name, problem, _DELETE_OR_AGGREGATE))
            elif file in spools and spools[file].sha256() != storage.sha256(file.url(plan)):
                problem = "is not the run that the sealed stages of the current plan give"
                found.findings.append(Finding(name, problem, remedy))
    if evaluators and failed:
        found.notes.append(f"not checked: {RUNS}/{MEASURES}, as not all runs can be made")
    elif evaluators and (lines := plan.changed_qrels()):
        found.notes += [f"not checked: {RUNS}/{MEASURES}: {line}" for line in lines]
    elif evaluators:
        expected = measure_files(finish_evaluations(plan, evaluators))
        present = storage.read_files(storage.join(plan.output, RUNS), [MEASURES, PER_QUERY])
        problem = "does not hold the measures that runs and qrels give"
        changed = [
            name
            for name, each in expected.items()
            if each is not None and present.get(name) != each
        ]
        found.findings += [Finding(f"{RUNS}/{name}", problem, _WRITE_AGAIN) for name in changed]


def verify_parts(
    folder: PartFolder, expected: Mapping[int, str], remedy: str, found: Verification
) -> None:
    """Adds the findings about a folder below `runs/`: of each part its SHA-256 is expected."""
    place = f"{RUNS}/{storage.name(folder.url)}"
    found.findings += [
        Finding(f"{place}/{name}", why, remedy) for name, why in folder.problems(expected)
    ]
    found.count(storage.sizes_bytes(folder.url).values())

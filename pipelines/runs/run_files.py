"""The last stage: the files in `runs/`, written from the sealed parts and measured in the same pass."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from beamrank.commit.listing import RUNS
from beamrank.commit.part_folder import remove_parts
from beamrank.commit.parts import ShardParts, iter_shards, sealed_stages
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.commit.stage import Stage
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError
from beamrank.evaluation.evaluate import Evaluation, Evaluator
from beamrank.evaluation.measures import explain_names
from beamrank.formats.notes import counted
from beamrank.formats.qrels import read_qrels
from beamrank.progress import SILENT, Progress
from beamrank.storage import files as storage
from models.stages.core import open_stages
from pipelines.console.tables import count_lines
from pipelines.runs.measures import write_measures
from pipelines.runs.owner import check_current
from pipelines.runs.run_file import RunFile, describe_retrieval, run_files
from pipelines.runs.run_metadata import describe_data, machine_of, write_metadata
from pipelines.runs.spools import PartWriter, RunSpool, ShardWriter, Sink

Evaluators: TypeAlias = Mapping[RunFile, Evaluator]
WriteParts: TypeAlias = Callable[[ShardWriter, Mapping[str, Manifest]], None]


class WrittenRuns(NamedTuple):
    """The path of each run, and the measures of each by its name; none without qrels."""

    paths: dict[RunFile, str]
    evaluations: dict[str, Evaluation]


def write_runs(
    plan: Plan, config: RunConfig, progress: Progress = SILENT, write_parts: WriteParts | None = None
) -> WrittenRuns:
    """Writes every run of the plan in every format that the configuration asks for, and their measures.

    Args:
        plan: its stages are finished.
        config: of the plan.
        progress: receives notes.
        write_parts: lets workers write the parts of folders; by default this process does.

    Raises:
        PreflightError: stages are not finished; it names them, and how to run them or to do without them.
    """
    manifests, stages = sealed_stages(plan), open_stages(plan.stages)
    for manifest in manifests.values():
        for line in count_lines(manifest):
            progress.note(line)
    files = run_files(stages, config)
    evaluators = run_evaluators(plan, config, files)
    paths = write_run_files(plan, config, files, stages, manifests, evaluators, write_parts)
    evaluations = finish_evaluations(plan, evaluators)
    if evaluations:
        _note_evaluations(plan, config, evaluations, progress)
        check_current(plan)
        write_measures(plan.output, evaluations)
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
    """Writes some runs with their metadata, lets evaluators see those that they measure, and returns their paths."""
    urls = {file: storage.join(plan.output, RUNS, file.base) for file in files}
    data = describe_data(config)
    goal = {} if config.qrels is None else {"evaluation": {"reported measures": list(config.measures)}}
    writers = {file: PartWriter(file, config.run_tag, file.folder(plan)) for file in files if file.in_parts}
    for writer in writers.values():
        check_current(plan)
        writer.folder.begin()
    with ExitStack() as stack:
        spools = {file: stack.enter_context(RunSpool(file, config.run_tag)) for file in files if not file.in_parts}
        sinks: dict[RunFile, Sink] = {**spools}
        if writers and write_parts is not None:
            ranking = tuple(stage for stage in stages if stage.ranks)
            write_parts(ShardWriter(ranking, tuple(writers.values())), manifests)
        else:
            sinks |= writers
        feed(iter_shards(plan, stages, manifests), sinks, evaluators)
        for file, url in urls.items():
            check_current(plan)
            if file in writers:
                # Another process may have begun to write the same runs again.
                missing = set(writers[file].folder.missing())
                again = (parts for parts in iter_shards(plan, stages, manifests) if parts.shard in missing)
                feed(again, {file: writers[file]} if missing else {}, {})
                writers[file].folder.seal()
            else:
                remove_parts(url)
                storage.replace_stream(url, spools[file].chunks())
            machine = machine_of(plan.output, manifests[file.stage])
            write_metadata(url, config.run_tag, machine, list(describe_retrieval(stages, file)), data, goal)
    return urls


def feed(
    shards: Iterable[ShardParts],
    sinks: Mapping[RunFile, Sink],
    evaluators: Evaluators,
    failed: dict[RunFile, BeamrankError] | None = None,
) -> None:
    """Makes runs in one pass over the parts. Evaluators see the rankings of their runs, until a run has failed.

    `failed` receives the runs that cannot be made; by default the first error is raised.
    """
    for parts in shards if sinks or evaluators else ():
        for file, sink in sinks.items():
            try:
                sink.add(parts)
            except BeamrankError as error:
                if failed is None:
                    raise
                failed[file] = error
        for file, evaluator in () if failed else evaluators.items():
            # A written run is read in the rankings' own order: its scores decrease strictly.
            evaluator.add((query_id, each.doc_ids) for query_id, each in file.rankings(parts).items())


def run_evaluators(plan: Plan, config: RunConfig, files: Sequence[RunFile]) -> Evaluators:
    """The evaluator of each run of `run_files`, regardless of its formats; none without qrels."""
    if config.qrels is None:
        return {}
    qrels = read_qrels(config.qrels, rejects=config.max_bad_rows.rejects("qrels"))
    if plan.limited:
        qrels = qrels.of_topics(plan.topics.those_of(qrels.relevance))
    return {file: Evaluator(qrels, config.measures) for file in files[:: len(config.run_formats)]}


def finish_evaluations(plan: Plan, evaluators: Evaluators) -> dict[str, Evaluation]:
    """The measures of each run, by its name; the same however its topics were cut into shards."""
    topics = plan.topics.query_ids
    return {file.name: evaluator.evaluation(topics, by_id=True) for file, evaluator in evaluators.items()}


def _note_evaluations(plan: Plan, config: RunConfig, evaluations: Mapping[str, Evaluation], progress: Progress) -> None:
    notes = next(iter(evaluations.values())).notes
    for note in (*explain_names(config.measures), *notes.lines()):
        progress.note(note)
    # All runs have the same topics.
    for warning in notes.warnings:
        progress.warn(warning)
    if plan.limited:
        progress.note(
            f"a trial: the measures are means over the {counted(notes.topics, 'judged topic')} among the "
            f"{len(plan.topics):,} that were run (topics.limit), not over all topics of the qrels"
        )

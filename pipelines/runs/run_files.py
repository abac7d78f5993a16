"""The last stage: the runs, written from the sealed parts and measured in the same pass over them."""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

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
from beamrank.formats.run_writer import run_lines
from beamrank.progress import SILENT, Progress
from beamrank.ranking.rankings import Rankings
from beamrank.storage import files as storage
from models.stages.core import open_stages
from pipelines.console.counts import count_lines
from pipelines.runs.owner import check_current
from pipelines.runs.run_metadata import describe_data, describe_retrieval, machine_of, write_metadata
from pipelines.runs.run_names import MEASURES, RUNS, RunFile, run_files

Evaluators: TypeAlias = Mapping[RunFile, Evaluator]


class WrittenRuns(NamedTuple):
    """The path of each run, and the measures of each by its name; none without qrels."""

    paths: dict[RunFile, str]
    evaluations: dict[str, Evaluation]


def write_runs(plan: Plan, config: RunConfig, progress: Progress = SILENT) -> WrittenRuns:
    """Writes every run of the plan in every format that the configuration asks for, and their measures.

    Raises:
        PreflightError: stages are not finished; it names them, and how to run them or to do without them.
    """
    manifests, stages = sealed_stages(plan), open_stages(plan.stages)
    for manifest in manifests.values():
        for line in count_lines(manifest):
            progress.note(line)
    files = run_files(stages, config)
    evaluators = run_evaluators(plan, config, files)
    paths = write_run_files(plan, config, files, stages, manifests, evaluators)
    evaluations = finish_evaluations(plan, evaluators)
    if evaluations:
        _note_evaluations(plan, config, evaluations, progress)
        check_current(plan)
        storage.replace(storage.join(plan.output, RUNS, MEASURES), measures_content(evaluations))
    return WrittenRuns(paths, evaluations)


def write_run_files(
    plan: Plan,
    config: RunConfig,
    files: Sequence[RunFile],
    stages: Sequence[Stage],
    manifests: Mapping[str, Manifest],
    evaluators: Evaluators = MappingProxyType({}),
) -> dict[RunFile, str]:
    """Writes some runs with their metadata, and lets the evaluators see those that they measure.

    Args:
        plan: the plan.
        config: its configuration.
        files: the runs.
        stages: those of the plan.
        manifests: of the stages, by name.
        evaluators: of runs.

    Returns:
        The path of each run.
    """
    urls = {file: storage.join(plan.output, RUNS, file.base) for file in files}
    data = describe_data(config)
    goal = {} if config.qrels is None else {"evaluation": {"reported measures": list(config.measures)}}
    shards = iter_shards(plan, stages, manifests)
    with spooled_runs(shards, config.run_tag, files, evaluators) as spools:
        for file, spool in spools.items():
            check_current(plan)
            storage.replace_stream(urls[file], spool.chunks())
            machine = machine_of(plan.output, manifests[file.stage])
            write_metadata(urls[file], config.run_tag, machine, list(describe_retrieval(stages, file)), data, goal)
    return urls


@contextmanager
def spooled_runs(
    shards: Iterable[ShardParts],
    run_tag: str,
    files: Sequence[RunFile],
    evaluators: Evaluators,
    failed: dict[RunFile, BeamrankError] | None = None,
) -> Iterator[dict[RunFile, "RunSpool"]]:
    """Makes runs in one pass over the parts.

    Args:
        shards: the parts.
        run_tag: the last column of the runs.
        files: the runs.
        evaluators: see the rankings of the runs that they measure, until a run has failed.
        failed: receives the runs that cannot be made; by default the first error is raised.
    """
    with ExitStack() as stack:
        spools = {file: stack.enter_context(RunSpool(run_tag, file.run_format)) for file in files}
        for parts in shards:
            for file, spool in spools.items():
                try:
                    spool.add(file.rankings(parts))
                except BeamrankError as error:
                    if failed is None:
                        raise
                    failed[file] = error
            for file, evaluator in () if failed else evaluators.items():
                # A written run is read in the rankings' own order: its scores decrease strictly.
                evaluator.add((query_id, each.doc_ids) for query_id, each in file.rankings(parts).items())
        yield spools


def run_evaluators(plan: Plan, config: RunConfig, files: Sequence[RunFile]) -> Evaluators:
    """The evaluator of each run of `run_files`, regardless of its formats; none without qrels."""
    if config.qrels is None:
        return {}
    qrels = read_qrels(config.qrels)
    if plan.limited:
        qrels = qrels.of_topics({topic.query_id for topic in plan.topics})
    return {file: Evaluator(qrels, config.measures) for file in files[:: len(config.run_formats)]}


def finish_evaluations(plan: Plan, evaluators: Evaluators) -> dict[str, Evaluation]:
    """The measures of each run, by its name; the same however its topics were cut into shards."""
    topics = {topic.query_id for topic in plan.topics}
    return {file.name: evaluator.evaluation(topics, by_id=True) for file, evaluator in evaluators.items()}


def measures_content(evaluations: Mapping[str, Evaluation]) -> bytes:
    """`measures.json`: the means of each run, and below `per_query` the values of each topic."""
    means = {name: each.means for name, each in evaluations.items()}
    per_query = {name: each.per_query for name, each in evaluations.items()}
    return json.dumps({**means, "per_query": per_query}, indent=1).encode()


def _note_evaluations(plan: Plan, config: RunConfig, evaluations: Mapping[str, Evaluation], progress: Progress) -> None:
    notes = next(iter(evaluations.values())).notes
    for note in (*explain_names(config.measures), *notes.lines()):
        progress.note(note)
    # All runs have the same topics.
    for warning in notes.warnings():
        progress.warn(warning)
    if plan.limited:
        progress.note(
            f"a trial: the measures are means over the {counted(notes.topics, 'judged topic')} among the "
            f"{len(plan.topics):,} that were run (topics.limit), not over all topics of the qrels"
        )


class RunSpool:
    """A run on disk while it is made, so that memory holds two numbers a query."""

    def __init__(self, run_tag: str, run_format: str) -> None:
        self._tag, self._format = run_tag, run_format
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._spans: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> "RunSpool":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, rankings: Rankings) -> None:
        """Takes the rankings of some queries."""
        for query_id, ranking in rankings.items():
            start = self._file.tell()
            lines = run_lines(query_id, ranking, self._tag, self._format)
            self._file.write("".join(f"{line}\n" for line in lines).encode())
            self._spans[query_id] = start, self._file.tell() - start

    def sha256(self) -> str:
        """The SHA-256 of the run as a file, in hex."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def chunks(self) -> Iterator[bytes]:
        """The run as a file, queries sorted by id."""
        for _, (start, length) in sorted(self._spans.items()):
            self._file.seek(start)
            yield self._file.read(length)

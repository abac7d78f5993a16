"""The last stage: the files in `runs/`, written from the sealed parts, measured in the same pass and verified."""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from beamrank.commit.check import Finding, Verification
from beamrank.commit.listing import RUNS
from beamrank.commit.parts import ShardParts, iter_shards, sealed_stages
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, StageFolder
from beamrank.commit.stage import Stage
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, ReceiptError
from beamrank.evaluation.evaluate import Evaluation, Evaluator
from beamrank.evaluation.measures import explain_names
from beamrank.formats.notes import counted
from beamrank.formats.qrels import read_qrels
from beamrank.formats.run_writer import FORMATS, run_lines
from beamrank.progress import SILENT, Progress
from beamrank.ranking.rankings import Rankings
from beamrank.storage import files as storage
from models.stages.base import RANKED_BY
from models.stages.core import open_stages
from pipelines.console.tables import count_lines
from pipelines.runs.owner import check_current
from pipelines.runs.run_metadata import ENDING, Component, describe_data, is_unchanged, machine_of, write_metadata

MEASURES = "measures.json"
_WRITE_AGAIN = "`beamrank run CONFIG --stage runs` writes it again"
_AGGREGATE_AGAIN = "`beamrank aggregate` writes it again"
_DELETE_OR_AGGREGATE = f"{_AGGREGATE_AGAIN}; delete it if you do not need it"


@dataclass(frozen=True)
class RunFile:
    """One run to write.

    Attributes:
        name: the run's: the file's, without its ending.
        stage: the stage that ranks.
        run_format: of the file.
        k: how many docs count as received by the stage; None for all that it received.
        variant: settings of the stage that its parts can be ranked with, in place of its own, such as an aggregation.
    """

    name: str
    stage: str
    run_format: str = "trec"
    k: int | None = None
    variant: tuple[tuple[str, Any], ...] = ()

    @property
    def base(self) -> str:
        """The file's name."""
        return f"{self.name}.{FORMATS[self.run_format].ending}"

    def rankings(self, parts: ShardParts) -> Rankings:
        """Each query's ranking, from the parts of a shard."""
        if self.k is None and not self.variant:
            return parts.rankings(self.stage)
        stage: Any = next(each for each in parts.stages if each.name == self.stage)
        return parts.rank(replace(stage, **dict(self.variant)), self.k)


def run_files(stages: Sequence[Stage], config: RunConfig) -> list[RunFile]:
    """The runs of a plan, in the order of its stages, each in every format that the configuration asks for."""
    return [
        RunFile(str(stage.run_name), stage.name, run_format)
        for stage in stages
        if stage.ranks
        for run_format in config.run_formats
    ]


def parse_run_file(stages: Sequence[Stage], base: str) -> RunFile | None:
    """The run of a variant of a stage that has this file name; None if no run has it."""
    name, _, ending = base.partition(".")
    run_format = next((each for each, found in FORMATS.items() if found.ending == ending), None)
    for stage in stages if run_format else ():
        found = stage.parse_run_name(name)
        if found is not None:
            return RunFile(name, stage.name, run_format or "", found[1], found[0])
    return None


def describe_retrieval(stages: Sequence[Any], file: RunFile) -> Iterator[Component]:
    """The stages up to that of a run, with the settings that decide its scores."""
    before: str | None = None
    for stage in stages:
        if not stage.ranks:
            continue
        is_last = stage.name == file.stage
        varied = replace(stage, **dict(file.variant)) if is_last else stage
        # The first stage's folder has a name of ours.
        name = stage.method if before is None or stage.name == stage.type_name else f"{stage.method}:{stage.name}"
        settings = {
            **({} if before is None else {"checkpoint": getattr(stage, "checkpoint", None)}),
            **{key: value for key, value in stage.keys.items() if key != RANKED_BY},
            **varied.described,
            **({"k": file.k} if is_last and file.k is not None else {}),
            "reranks": before,
        }
        yield {"name": name, **{key: value for key, value in settings.items() if value not in (None, {})}}
        if is_last:
            return
        before = name


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
    """Writes some runs with their metadata, lets evaluators see those that they measure, and returns their paths."""
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
    """Makes runs in one pass over the parts. Evaluators see the rankings of their runs, until a run has failed.

    `failed` receives the runs that cannot be made; by default the first error is raised.
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


def verify_runs(plan: Plan, stages: Sequence[Stage], config: RunConfig, found: Verification) -> None:
    """Adds the findings about the runs and their measures, which are written from sealed stages."""
    manifests = plan.manifests(StageFolder.stated)
    unknown = [stage.name for stage in plan.stages if stage.name not in manifests]
    if unknown:
        damaged = any(finding.file.partition("/")[0] in unknown for finding in found.findings)
        why = "receipts and manifests are damaged" if damaged else "the run is not finished"
        found.notes.append(f"{why} ({', '.join(unknown)}): its runs were not checked")
        return
    present = storage.sizes_bytes(storage.join(plan.output, RUNS))
    expected = run_files(stages, config)
    own = {file.base: file for file in expected}
    if not own.keys() & present.keys():
        found.notes.append(f"the runs are not written yet: {_WRITE_AGAIN.replace('it again', 'them')}")
    else:
        found.findings += [
            Finding(f"{RUNS}/{base}", "is missing", _WRITE_AGAIN) for base in sorted(own.keys() - present.keys())
        ]
    metadata = {f"{base}{ENDING}" for base in present} & present.keys()
    files = {base: own.get(base) for base in sorted(present.keys() - metadata - {MEASURES})}
    files = {base: file or parse_run_file(stages, base) for base, file in files.items()}
    for base, file in files.items():
        if file is None:
            found.notes.append(f"not checked: {RUNS}/{base}, which is not a run of the current plan")
    ours = [file for file in files.values() if file is not None]
    evaluators = _evaluators(plan, config, expected, found) if MEASURES in present else {}
    shards = iter_shards(plan, stages, manifests)
    found.findings += _verify_files(plan, shards, expected, ours, evaluators, found.notes)
    for base in sorted({*metadata, *(f"{file.base}{ENDING}" for file in ours)}):
        is_own = base.removesuffix(ENDING) in own
        if base not in present:
            remedy = _WRITE_AGAIN if is_own else _AGGREGATE_AGAIN
            found.findings.append(Finding(f"{RUNS}/{base}", "is missing", remedy))
        # What they hold depends on the machine that wrote them.
        elif not is_unchanged(storage.read_bytes(storage.join(plan.output, RUNS, base))):
            remedy = _WRITE_AGAIN if is_own else _DELETE_OR_AGGREGATE
            found.findings.append(Finding(f"{RUNS}/{base}", "was changed after it was written", remedy))
    read = [*(file.base for file in ours), *metadata, *[MEASURES] * (MEASURES in present)]
    found.files += len(read)
    found.bytes += sum(present[base] for base in read)


def _evaluators(plan: Plan, config: RunConfig, files: Sequence[RunFile], found: Verification) -> Evaluators:
    if config.qrels is None:
        found.notes.append(f"not checked: {RUNS}/{MEASURES}, as the current plan has no qrels")
    try:
        return run_evaluators(plan, config, files)
    except (BeamrankError, OSError) as error:
        found.notes.append(f"not checked: {RUNS}/{MEASURES}: {error}")
        return {}


def _verify_files(
    plan: Plan,
    shards: Iterable[ShardParts],
    own: Sequence[RunFile],
    files: Sequence[RunFile],
    evaluators: Evaluators,
    notes: list[str],
) -> Iterator[Finding]:
    """Recreates all runs, and compares them with the files; notes those whose parts are damaged."""
    failed: dict[RunFile, BeamrankError] = {}
    with spooled_runs(shards, plan.run_tag, files, evaluators, failed) as spools:
        for file, spool in spools.items():
            name = f"{RUNS}/{file.base}"
            if isinstance(failed.get(file), ReceiptError):
                notes.append(f"not checked: {name}, which is made from a damaged part")
            elif file in failed:
                yield Finding(name, f"cannot be made from the sealed stages ({failed[file]})", _DELETE_OR_AGGREGATE)
            elif spool.sha256() != storage.sha256(storage.join(plan.output, name)):
                remedy = _WRITE_AGAIN if file in own else _DELETE_OR_AGGREGATE
                yield Finding(name, "is not the run that the sealed stages of the current plan give", remedy)
    if evaluators and failed:
        notes.append(f"not checked: {RUNS}/{MEASURES}, as not all runs can be made")
    elif evaluators:
        expected = measures_content(finish_evaluations(plan, evaluators))
        if storage.read_bytes(storage.join(plan.output, RUNS, MEASURES)) != expected:
            problem = "does not hold the measures that runs and qrels give"
            yield Finding(f"{RUNS}/{MEASURES}", problem, _WRITE_AGAIN)


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

"""Verifies the files in `runs/`: each is made again from the sealed parts, and compared."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from beamrank.commit.check import Finding, Verification
from beamrank.commit.listing import RUNS
from beamrank.commit.parts import ShardParts, iter_shards
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import StageFolder
from beamrank.commit.stage import Stage
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, ReceiptError
from beamrank.storage import files as storage
from pipelines.runs.measures import MEASURES, PER_QUERY, changed_measures
from pipelines.runs.run_file import RunFile, parse_run_file, run_files
from pipelines.runs.run_files import Evaluators, feed, finish_evaluations, run_evaluators
from pipelines.runs.run_metadata import ENDING, is_unchanged
from pipelines.runs.spools import RunSpool

_WRITE_AGAIN = "`beamrank run CONFIG --stage runs` writes it again"
_AGGREGATE_AGAIN = "`beamrank aggregate` writes it again"
_OTHER = "is not the {} that the sealed stages of the current plan give"
_DELETE_OR_AGGREGATE = f"{_AGGREGATE_AGAIN}; delete it if you do not need it"


def verify_runs(plan: Plan, stages: Sequence[Stage], config: RunConfig, found: Verification) -> None:
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
    expected = run_files(stages, config)
    own = {file.base: file for file in expected}
    missing = sorted(base for base, file in own.items() if base not in (folders if file.in_parts else sizes))
    if len(missing) == len(own):
        found.notes.append(f"the runs are not written yet: {_WRITE_AGAIN.replace('it again', 'them')}")
    else:
        found.findings += [Finding(f"{RUNS}/{base}", "is missing", _WRITE_AGAIN) for base in missing]
    metadata = {f"{base}{ENDING}" for base in {*sizes, *folders}} & sizes.keys()
    ours = []
    for base in sorted((sizes.keys() | folders) - metadata - {MEASURES, PER_QUERY}):
        file = own.get(base) or parse_run_file(stages, base)
        if file is None or file.in_parts != (base in folders):
            found.notes.append(f"not checked: {RUNS}/{base}, which is not a run of the current plan")
        else:
            ours.append(file)
    evaluators = _evaluators(plan, config, expected, found) if MEASURES in sizes else {}
    _verify_files(plan, iter_shards(plan, stages, manifests), expected, ours, evaluators, found)
    for base in sorted({*metadata, *(f"{file.base}{ENDING}" for file in ours)}):
        is_own = base.removesuffix(ENDING) in own
        if base not in sizes:
            remedy = _WRITE_AGAIN if is_own else _AGGREGATE_AGAIN
            found.findings.append(Finding(f"{RUNS}/{base}", "is missing", remedy))
        # What they hold depends on the machine that wrote them.
        elif not is_unchanged(storage.read_bytes(storage.join(here, base))):
            remedy = _WRITE_AGAIN if is_own else _DELETE_OR_AGGREGATE
            found.findings.append(Finding(f"{RUNS}/{base}", "was changed after it was written", remedy))
    in_one = [file.base for file in ours if not file.in_parts]
    read = [sizes[base] for base in (*in_one, *metadata, *({MEASURES, PER_QUERY} & sizes.keys()))]
    found.files += len(read)
    found.bytes += sum(read)


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
    found: Verification,
) -> None:
    """Recreates all runs, and compares them with the files; notes those whose parts are damaged."""
    failed: dict[RunFile, BeamrankError] = {}
    with ExitStack() as stack:
        spools = {file: stack.enter_context(RunSpool(file, plan.run_tag)) for file in files if not file.in_parts}
        checks = {file: _PartCheck(file, plan) for file in files if file.in_parts}
        feed(shards, {**spools, **checks}, evaluators, failed)
        for file in files:
            name = f"{RUNS}/{file.base}"
            remedy = _WRITE_AGAIN if file in own else _DELETE_OR_AGGREGATE
            if file in checks:
                found.findings += [
                    Finding(f"{name}/{each}", problem, remedy) for each, problem in checks[file].problems
                ]
                found.files += len(checks[file].sizes)
                found.bytes += sum(checks[file].sizes.values())
            if isinstance(failed.get(file), ReceiptError):
                found.notes.append(f"not checked: {name}, which is made from a damaged part")
            elif file in failed:
                problem = f"cannot be made from the sealed stages ({failed[file]})"
                found.findings.append(Finding(name, problem, _DELETE_OR_AGGREGATE))
            elif file in spools and spools[file].sha256() != storage.sha256(storage.join(plan.output, name)):
                found.findings.append(Finding(name, _OTHER.format("run"), remedy))
    if evaluators and failed:
        found.notes.append(f"not checked: {RUNS}/{MEASURES}, as not all runs can be made")
    elif evaluators:
        for base in changed_measures(plan.output, finish_evaluations(plan, evaluators)):
            problem = "does not hold the measures that runs and qrels give"
            found.findings.append(Finding(f"{RUNS}/{base}", problem, _WRITE_AGAIN))


class _PartCheck:
    """Compares a run in parts with its folder.

    Attributes:
        sizes: of the files in the folder.
        problems: the names of files, each with what is wrong.
    """

    def __init__(self, run: RunFile, plan: Plan) -> None:
        self._run, self._tag, self._folder = run, plan.run_tag, run.folder(plan)
        self.sizes = storage.sizes_bytes(self._folder.url)
        self.problems = self._folder.problems()

    def add(self, parts: ShardParts) -> None:
        """Compares the part of a shard."""
        name = self._folder.part(parts.shard)
        content = self._run.part(parts, self._tag)
        if name in self.sizes and storage.read_bytes(storage.join(self._folder.url, name)) != content:
            self.problems.append((name, _OTHER.format("part")))

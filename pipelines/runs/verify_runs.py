"""Verifies the files in `runs/` against the sealed stages."""

from collections.abc import Iterable, Iterator, Sequence

from beamrank.commit.parts import ShardParts, iter_shards
from beamrank.commit.plan import Plan
from beamrank.commit.stage import Stage
from beamrank.commit.verify import Finding, Verification
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, ReceiptError
from beamrank.storage import files as storage
from pipelines.runs.run_files import Evaluators, finish_evaluations, measures_content, run_evaluators, spooled_runs
from pipelines.runs.run_metadata import ENDING, is_unchanged
from pipelines.runs.run_names import MEASURES, RUNS, RunFile, parse_run_file, run_files

_WRITE_AGAIN = "`beamrank run CONFIG --stage runs` writes it again"
_AGGREGATE_AGAIN = "`beamrank aggregate` writes it again"
_DELETE_OR_AGGREGATE = f"{_AGGREGATE_AGAIN}; delete it if you do not need it"


def verify_runs(plan: Plan, stages: Sequence[Stage], config: RunConfig, found: Verification) -> None:
    """Adds the findings about the runs and their measures, which are written from sealed stages."""
    stated = {stage.name: plan.stated(stage.name) for stage in plan.stages}
    manifests = {name: manifest for name, manifest in stated.items() if manifest is not None}
    unknown = [name for name, manifest in stated.items() if manifest is None]
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

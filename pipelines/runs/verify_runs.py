"""The checks of the files in `runs/`: a run is made again from the sealed parts, and compared."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from beamrank.commit.check import Finding, Verification
from beamrank.commit.listing import MEASURES, PER_QUERY, RUNS
from beamrank.commit.parts import ShardParts, iter_shards
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, StageFolder
from beamrank.commit.stage import Stage
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, ReceiptError
from beamrank.report.runs import read_judgments
from beamrank.storage import files as storage
from beamrank.storage.documents import sha256
from pipelines.runs.run_file import PartFolder, RunFile, RunSpool, parse_run_file, run_files
from pipelines.runs.run_files import (
    Evaluators,
    evaluate_shard,
    finish_evaluations,
    measure_files,
    run_evaluators,
)
from pipelines.runs.run_metadata import ENDING, is_unchanged

_WRITE_AGAIN = "`beamrank run CONFIG --stage runs` writes it again"
_AGGREGATE_AGAIN = "`beamrank aggregate` writes it again"
_DELETE_OR_AGGREGATE = f"{_AGGREGATE_AGAIN}; delete it if you do not need it"


def verify_runs(
    plan: Plan, stages: Sequence[Stage], config: RunConfig, verification: Verification
) -> None:
    """Adds the findings about the runs and their measures, which are written from sealed stages."""
    manifests = plan.manifests(StageFolder.stated)
    unknown = [stage.name for stage in plan.stages if stage.name not in manifests]
    if unknown:
        damaged = any(
            finding.file.partition("/")[0] in unknown for finding in verification.findings
        )
        why = "receipts and manifests are damaged" if damaged else "the run is not finished"
        verification.notes.append(f"{why} ({', '.join(unknown)}): its runs were not checked")
        return
    here = storage.join(plan.output, RUNS)
    sizes, folders = storage.sizes_bytes(here), storage.folder_names(here)
    configured = {file.base: file for file in run_files(stages, config)}
    missing = sorted(
        base
        for base, file in configured.items()
        if base not in (folders if file.in_parts else sizes)
    )
    if len(missing) == len(configured):
        verification.notes.append(
            f"the runs are not written yet: {_WRITE_AGAIN.replace('it again', 'them')}"
        )
    else:
        if config.judgments is not None and MEASURES not in sizes:
            missing.append(MEASURES)
        verification.findings += [
            Finding(f"{RUNS}/{base}", "is missing", _WRITE_AGAIN) for base in missing
        ]
    metadata = {f"{base}{ENDING}" for base in {*sizes, *folders}} & sizes.keys()
    ours = []
    for base in sorted((sizes.keys() | folders) - metadata - {MEASURES, PER_QUERY}):
        file = configured.get(base) or parse_run_file(stages, base, base in folders)
        if file is None or file.in_parts != (base in folders):
            verification.notes.append(
                f"not checked: {RUNS}/{base}, which is not a run of the current plan"
            )
        else:
            ours.append(file)
    evaluators = (
        _evaluators(plan, config, list(configured.values()), verification)
        if MEASURES in sizes
        else {}
    )
    _verify_files(
        plan,
        stages,
        manifests,
        {file: file.base in configured for file in ours},
        evaluators,
        verification,
    )
    for base in sorted({*metadata, *(f"{file.base}{ENDING}" for file in ours)}):
        run = base.removesuffix(ENDING)
        is_own = run in configured
        if base not in sizes:
            remedy = _WRITE_AGAIN if is_own else _AGGREGATE_AGAIN
            verification.findings.append(Finding(f"{RUNS}/{base}", "is missing", remedy))
        # What they hold depends on the machine that wrote them.
        elif not is_unchanged(storage.read_bytes(storage.join(here, base)), run):
            remedy = _WRITE_AGAIN if is_own else _DELETE_OR_AGGREGATE
            verification.findings.append(
                Finding(f"{RUNS}/{base}", "was changed after it was written", remedy)
            )
    in_one = [file.base for file in ours if not file.in_parts]
    verification.count(
        [sizes[base] for base in (*in_one, *metadata, *({MEASURES, PER_QUERY} & sizes.keys()))]
    )


def _evaluators(
    plan: Plan, config: RunConfig, files: Sequence[RunFile], verification: Verification
) -> Evaluators:
    if config.judgments is None:
        verification.notes.append(
            f"not checked: {RUNS}/{MEASURES}, as the current plan has no qrels or no measures"
        )
    try:
        return run_evaluators(config, files, read_judgments(plan, config))
    except (BeamrankError, OSError) as error:
        verification.notes.append(f"not checked: {RUNS}/{MEASURES}: {error}")
        return {}


def _verify_files(
    plan: Plan,
    stages: Sequence[Stage],
    manifests: Mapping[str, Manifest],
    files: Mapping[RunFile, bool],
    evaluators: Evaluators,
    verification: Verification,
) -> None:
    """Makes runs again, and compares them with the files; notes runs whose parts are damaged.

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
                verify_parts(file.folder(plan), hashes[file], remedy, verification)
            if isinstance(failed.get(file), ReceiptError):
                verification.notes.append(f"not checked: {name}, which is made from a damaged part")
            elif file in failed:
                problem = f"cannot be made from the sealed stages ({failed[file]})"
                verification.findings.append(Finding(name, problem, _DELETE_OR_AGGREGATE))
            elif file in spools and spools[file].sha256() != storage.sha256(file.url(plan)):
                problem = "is not the run that the sealed stages of the current plan give"
                verification.findings.append(Finding(name, problem, remedy))
    if evaluators and failed:
        verification.notes.append(f"not checked: {RUNS}/{MEASURES}, as not all runs can be made")
    elif evaluators and (lines := plan.changed_qrels()):
        verification.notes += [f"not checked: {RUNS}/{MEASURES}: {line}" for line in lines]
    elif evaluators:
        expected = measure_files(finish_evaluations(plan, evaluators))
        present = storage.read_files(storage.join(plan.output, RUNS), [MEASURES, PER_QUERY])
        problem = "does not hold the measures that runs and qrels give"
        changed = [
            name
            for name, measured in expected.items()
            if measured is not None and present.get(name) != measured
        ]
        verification.findings += [
            Finding(f"{RUNS}/{name}", problem, _WRITE_AGAIN) for name in changed
        ]


def verify_parts(
    folder: PartFolder, expected: Mapping[int, str], remedy: str, verification: Verification
) -> None:
    """Adds the findings about a folder below `runs/`: of each part its SHA-256 is expected."""
    place = f"{RUNS}/{storage.name(folder.url)}"
    verification.findings += [
        Finding(f"{place}/{name}", why, remedy) for name, why in folder.problems(expected)
    ]
    verification.count(storage.sizes_bytes(folder.url).values())

"""Whether the files in `runs/` are what the sealed stages give."""

import hashlib
import re
from collections.abc import Iterator

from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError
from beamrank.formats.runs import RunFormat
from beamrank.ranking.aggregation import METHODS
from beamrank.stages.plan import Plan
from beamrank.stages.verify import Finding, Verification
from beamrank.storage import files as storage
from pipelines.output.run_files import (
    MEASURES,
    RUN_ENDINGS,
    RUNS,
    RunFile,
    measure_runs,
    measures_content,
    run_content,
    run_files,
)

_AGGREGATED = re.compile(
    rf"duo-(?P<aggregation>{'|'.join(METHODS)})(?:-k(?P<k1>\d+))?(?:-m(?P<opponents>\d+)-s(?P<seed>-?\d+))?"
)
_WRITE_AGAIN = "`beamrank run CONFIG --stage runs` writes it again"
_AGGREGATE_AGAIN = "`beamrank aggregate` writes it again; delete it if it is not wanted"


def verify_runs(plan: Plan, config: RunConfig, found: Verification) -> None:
    """Adds to what is found what is wrong with the runs and their measures, which are written from sealed stages."""
    unsealed = [stage.name for stage in plan.stages if plan.seal_of(stage.name) is None]
    if unsealed:
        found.notes.append(f"the run is not finished ({', '.join(unsealed)}): its runs were not checked")
        return
    there = storage.sizes_bytes(storage.join(plan.output, RUNS))
    own = {file.base(form): (file, form) for file in run_files(plan, config) for form in config.run_formats}
    if not own.keys() & there.keys():
        found.notes.append(f"the runs are not written yet: {_WRITE_AGAIN.replace('again', 'them')}")
    else:
        found.findings += [
            Finding(f"{RUNS}/{base}", "is missing", _WRITE_AGAIN) for base in sorted(own.keys() - there.keys())
        ]
    for base, size in sorted(there.items()):
        file = own.get(base) or _aggregated(base, config)
        if file is not None:
            found.findings += _verify_run(plan, config, base, *file)
        elif base == MEASURES:
            _verify_measures(plan, config, found)
        else:
            found.notes.append(f"not checked: {RUNS}/{base}, which is no run of the current plan")
            continue
        found.files += 1
        found.bytes += size


def _aggregated(base: str, config: RunConfig) -> tuple[RunFile, RunFormat] | None:
    """The run that `beamrank aggregate` gives this name."""
    form: RunFormat
    for form, ending in RUN_ENDINGS.items():
        parsed = _AGGREGATED.fullmatch(base.removesuffix(f".{ending}")) if base.endswith(f".{ending}") else None
        if parsed is not None and config.duo is not None:
            k1, opponents, seed = (int(parsed[name]) if parsed[name] else None for name in ("k1", "opponents", "seed"))
            return RunFile("duo", parsed["aggregation"], k1, opponents, seed or 0), form
    return None


def _verify_run(plan: Plan, config: RunConfig, base: str, file: RunFile, form: RunFormat) -> Iterator[Finding]:
    written = storage.sha256(storage.join(plan.output, RUNS, base))
    expected = hashlib.sha256()
    try:
        with run_content(plan, config, file, form) as chunks:
            for chunk in chunks:
                expected.update(chunk)
    except BeamrankError as error:
        yield Finding(f"{RUNS}/{base}", f"cannot be made from the sealed stages ({error})", _AGGREGATE_AGAIN)
        return
    if expected.hexdigest() != written:
        remedy = _WRITE_AGAIN if file in run_files(plan, config) else _AGGREGATE_AGAIN
        yield Finding(f"{RUNS}/{base}", "is not the run that the sealed stages of the current plan give", remedy)


def _verify_measures(plan: Plan, config: RunConfig, found: Verification) -> None:
    if config.qrels is None:
        found.notes.append(f"not checked: {RUNS}/{MEASURES}, as the current plan has no qrels")
        return
    try:
        expected = measures_content(measure_runs(plan, config))
    except (BeamrankError, OSError) as error:
        found.notes.append(f"not checked: {RUNS}/{MEASURES}: {error}")
        return
    if storage.read_bytes(storage.join(plan.output, RUNS, MEASURES)) != expected:
        found.findings.append(
            Finding(f"{RUNS}/{MEASURES}", "does not hold the measures that runs and qrels give", _WRITE_AGAIN)
        )

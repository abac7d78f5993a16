r"""Disturbs random runs with random faults, and checks what must hold afterwards.

    python -m benchmarks.faults --seed 0 --count 1000 [--runners only local] \
        [--folder FOLDER] [--results FILE]
    python -m benchmarks.faults --seed 0 --only 17 [--keep 0 2]   one case; of its faults only these
    python -m benchmarks.faults --table                           the outcomes so far, by kind

A case is a run with a random configuration and one to four faults, decided by the seed and its
number. Afterwards the run is started until it is done. Its bytes must be an undisturbed
run's, and nothing may be left behind. Every case is a line of the results; a later start goes on
where this one ended. Of a case that breaks a rule, faults are left out as long as it still does,
and the command of what remains is printed.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.commands import parser_of, work_folder
from benchmarks.faults.cases import RUNNERS, Case, draw_case
from benchmarks.faults.play import Outcome, play
from benchmarks.faults.weather import Stores
from benchmarks.faults.worlds import Worlds
from benchmarks.report import table

_RESULTS = Path(__file__).resolve().parents[1] / "results" / "faults.jsonl"


_OPTIONS = {
    "--seed": (0, "of all that is random"),
    "--count": (100, "cases, from 0"),
    "--only": (int, "the number of one case"),
    "--keep": ([int], "with --only: the numbers of its faults, from 0"),
    "--runners": (list(RUNNERS), "the runners that are drawn"),
    "--folder": (Path, "of collections, and of cases that broke a rule"),
    "--results": (_RESULTS, "JSON lines"),
    "--table": (False, "print the outcomes of the results by kind"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays cases; 1 if one of them breaks a rule."""
    options = parser_of("benchmarks.faults", __doc__, _OPTIONS).parse_args(arguments)
    if options.table:
        print(outcomes(read(options.results)))
        return 0
    with work_folder(options.folder) as folder:
        if options.only is None:
            return campaign(
                options.seed, range(options.count), options.runners, folder, options.results
            )
        case = draw_case(options.seed, options.only, options.runners)
        case = case if options.keep is None else case.keep(options.keep)
        print(case, file=sys.stderr)
        with ExitStack() as stack:
            outcome = play(case, Worlds(case.seed, folder), Stores(stack), folder / "case")
        print(outcome)
        return int(bool(outcome.broken))


def campaign(
    seed: int, numbers: Iterable[int], runners: Sequence[str], folder: Path, results: Path
) -> int:
    """Plays the cases that have no line yet, and adds their lines; 1 if one of them breaks a
    rule.
    """
    done = {line["number"] for line in read(results) if line["seed"] == seed}
    worlds, failed = Worlds(seed, folder), 0
    with ExitStack() as stack:
        stores = Stores(stack)
        for number in numbers:
            if number in done:
                continue
            case = draw_case(seed, number, runners)
            outcome = play(case, worlds, stores, folder / f"case-{number}")
            if outcome.broken:
                failed = 1
                print(
                    f"case {number}: {outcome.broken}\n{_minimised(case, worlds, stores, folder)}",
                    file=sys.stderr,
                )
            with results.open("a") as file:
                file.write(json.dumps(_line(case, outcome), separators=(",", ":")) + "\n")
    return failed


def _minimised(case: Case, worlds: Worlds, stores: Stores, folder: Path) -> str:
    """Leaves faults out while the case still breaks a rule; returns the command of the rest."""
    kept = list(range(len(case.faults)))
    for fault in tuple(kept):
        fewer = [number for number in kept if number != fault]
        again = folder / f"case-{case.number}-fewer"
        if fewer and play(case.keep(fewer), worlds, stores, again).broken:
            kept = fewer
    return (
        f"python -m benchmarks.faults --seed {case.seed} --only {case.number} --keep "
        f"{' '.join(map(str, kept))}"
    )


def _line(case: Case, outcome: Outcome) -> dict[str, Any]:
    """A case as a line of the results."""
    kinds = [fault.kind for fault in case.faults]
    return {
        "seed": case.seed,
        "number": case.number,
        **case.setup._asdict(),
        "faults": list(zip(kinds, outcome.struck, strict=True)),
        "codes": outcome.codes,
        "seconds": outcome.seconds,
        "broken": outcome.broken[:300],
    }


def read(results: Path) -> list[dict[str, Any]]:
    """The lines of results; none where there is no file."""
    return list(map(json.loads, results.open())) if results.exists() else []


def outcomes(lines: Sequence[Mapping[str, Any]]) -> str:
    """The outcomes by kind of fault, then by runner, as Markdown."""
    outcomes_of: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for line in lines:
        for kind, struck in line["faults"]:
            for row in (kind, f"all with `{line['runner']}`", "all"):
                outcomes_of[row].append((struck, bool(line["broken"])))
    rows = []
    for row in sorted(outcomes_of, key=lambda row: (row == "all", row.startswith("all"), row)):
        struck, broken = map(sum, zip(*outcomes_of[row], strict=True))
        drawn = {"fault": row, "drawn": len(outcomes_of[row]), "struck": struck}
        rows.append({**drawn, "in cases that broke a rule": broken})
    broken = sum(bool(line["broken"]) for line in lines)
    return f"{table(rows)}\nCases: {len(lines):,}; broke a rule: {broken:,}."


if __name__ == "__main__":
    sys.exit(main())

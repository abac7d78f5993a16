"""How near the seconds that `beamrank plan` predicts are to those that the run takes.

    python -m benchmarks.prediction CONFIG ... --folder FOLDER

Each configuration's index is built, the run is planned with --save and done in FOLDER, and
`beamrank status` compares.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import check_output

from benchmarks.commands import parser_of
from benchmarks.subprocess_meter import BEAMRANK, run_metered


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line of the table for each stage, and for each run."""
    parser = parser_of("benchmarks.prediction", __doc__)
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--folder", required=True, type=Path)
    options = parser.parse_args(arguments)
    print("| configuration | stage | inferences | predicted seconds | worker seconds | ratio |")
    print("|---|---|---|---|---|---|")
    for config in options.configs:
        for line in measure(config, options.folder / config.parent.name):
            print(line, flush=True)


def measure(config: Path, output: Path) -> Iterator[str]:
    """The lines of one run, which must not have begun."""
    where = [str(config), "--output", str(output)]
    for command in (["index", str(config)], ["plan", *where, "--save"], ["run", *where]):
        run_metered([BEAMRANK, *command])
    stages = json.loads(check_output([BEAMRANK, "status", str(output), "--json"]))["stages"]
    total = {
        key: sum(stage[key] for stage in stages)
        for key in ("inferences", "predicted_seconds", "seconds")
    }
    for stage in [*stages, {"stage": "all", **total}]:
        predicted, spent = stage["predicted_seconds"], stage["seconds"]
        cells = [
            config.parent.name,
            stage["stage"],
            f"{stage['inferences']:,}",
            f"{predicted:.1f}",
            f"{spent:.1f}",
        ]
        yield f"| {' | '.join([*cells, f'{predicted / max(spent, 0.001):.2f}'])} |"


if __name__ == "__main__":
    main()

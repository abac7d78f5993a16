r"""Takes a first look at a GPU, in minutes and in order of use.

    python -m benchmarks.gpu --minutes 8 --output DIR
    python -m benchmarks.gpu --device cpu --tiny --output DIR

DIR/gpu.json and DIR/gpu.md are written after every row, so that a cut leaves what was measured. A
step that fails, or has used the time that it and those before it have, is named, and the next
begins in another process. The weights are random. Neither the embedded pair, Beam, Java nor an
installation is needed. Run it in the root of a checkout.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.commands import parser_of, work_folder
from benchmarks.gpu.checkpoints import Setup
from benchmarks.gpu.measure import DONE, measure
from benchmarks.gpu.steps import STEPS
from benchmarks.report import table
from benchmarks.results import command_line

_ROOT = Path(__file__).parents[2]
_OPTIONS = {
    "--device": ("cuda", "cuda or cpu"),
    "--minutes": (8.0, "for all steps"),
    "--output": (Path("gpu"), "the folder of gpu.json and gpu.md"),
    "--steps": ([str], f"of {', '.join(STEPS)} (all)"),
    "--tiny": (False, "models of two layers, and few inputs"),
    "--work": (Path, "keep the checkpoints here, instead of in a temporary folder"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the steps, and returns 1 where one failed or was cut."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser_of("benchmarks.gpu", __doc__, _OPTIONS).parse_args(given)
    chosen = {name: STEPS[name] for name in options.steps or STEPS}
    steps: dict[str, Any] = {name: {"rows": []} for name in chosen}
    document = {"command": command_line("benchmarks.gpu", given), "steps": steps}
    name_extensions()
    with work_folder(options.work) as work:
        setup = Setup(work, options.device, options.tiny)
        for name, row in measure(chosen, setup, options.minutes * 60):
            if "ended" in row:
                steps[name] |= row
            else:
                steps[name]["rows"].append(row)
            write(options.output, document)
            print(name, json.dumps(row), flush=True)
    return int(any(step["ended"] != DONE for step in steps.values()))


def name_extensions() -> None:
    """Where beamrank is not installed, writes what names the extensions of its packages."""
    try:
        version("beamrank")
    except PackageNotFoundError:
        subprocess.run([sys.executable, "setup.py", "-q", "egg_info"], cwd=_ROOT, check=False)


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """Writes the figures as JSON and as tables."""
    folder.mkdir(parents=True, exist_ok=True)
    page = [f"    {document['command']}\n"]
    for name, step in document["steps"].items():
        ended = f"{step.get('ended', 'not finished')}, {step.get('seconds', '?')} seconds"
        page.append(f"## {name}\n\n{ended}\n\n{table(step['rows'])}")
    contents = {"gpu.json": json.dumps(document, indent=1), "gpu.md": "\n".join(page)}
    for name, content in contents.items():
        part = folder / f"{name}.part"
        part.write_text(content)
        part.replace(folder / name)


if __name__ == "__main__":
    sys.exit(main())

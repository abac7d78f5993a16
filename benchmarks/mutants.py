"""Random mutants of a folder of beamrank/, and which of them the folder's own quick tests do not notice.

    pip install mutmut==3.8.1
    python -m benchmarks.mutants commit --count 300 --seed 0 --work FOLDER

mutmut changes one expression of a function or method at a time, and runs, in a forked process, the tests that call it.
It works on a copy of the tracked files in FOLDER. With `--again` the mutants that survived there are run again, with
the tests as they are now. Functions with decorators, such as properties, and code outside of functions have no mutants.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import Part, Results, command_line

_ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("commit", "ranking", "join", "evaluation")
# The candidates that a corpus lists are tested with its format.
_MORE_TESTS = {"join": "    tests/beamrank/formats/test_top1000.py"}
_COPIED = ("models", "transforms", "pipelines", "contrib", "benchmarks", "experiments", "README.md", "docs", "configs")
_CONFIG = """[mutmut]
source_paths=beamrank
only_mutate=beamrank/{folder}/*
also_copy=
{copied}
pytest_add_cli_args=-pno:cacheprovider
    -mnot slow and not jvm and not data
pytest_add_cli_args_test_selection=tests/beamrank/{folder}
{more}
timeout_constant=5
use_git_change_detection=false
"""


def copy_tree(work: Path, folder: str) -> None:
    """The tracked files as they are now, and mutmut's configuration."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        target = work / name
        # mutmut makes mutants of newer files again.
        if not target.exists() or target.read_bytes() != (_ROOT / name).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_ROOT / name, target)
    copied = "\n".join(f"    {name}" for name in _COPIED)
    (work / "setup.cfg").write_text(_CONFIG.format(folder=folder, copied=copied, more=_MORE_TESTS.get(folder, "")))


def all_mutants(work: Path, folder: str) -> list[str]:
    """The names of a folder's mutants."""
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name

    # mutmut reads its configuration in the current folder.
    os.chdir(work)
    paths = [path.relative_to(work) for path in sorted((work / "beamrank" / folder).rglob("*.py"))]
    return [
        get_mutant_name(path, name)
        for path in paths
        for name in mutate_file_contents(str(path), (work / path).read_text()).mutant_names
    ]


def outcomes(work: Path, folder: str) -> dict[str, str]:
    """What became of each mutant that was run."""
    from mutmut.stats import status_by_exit_code

    metas = [json.loads(path.read_text()) for path in (work / "mutants" / "beamrank" / folder).glob("*.meta")]
    codes = {name: code for meta in metas for name, code in meta["exit_code_by_key"].items() if code is not None}
    return {name: status_by_exit_code[code] for name, code in codes.items()}


def measure(work: Path, folder: str, count: int, seed: int, again: bool) -> Part:
    """Runs the mutants; those that survive are in the figures by name."""
    copy_tree(work, folder)
    names = all_mutants(work, folder)
    drawn = random.Random(seed).sample(sorted(names), min(count, len(names)))
    before = outcomes(work, folder) if again else {}
    chosen = [name for name in drawn if before.get(name) != "killed"]
    subprocess.run([sys.executable, "-m", "mutmut", "run", "--max-children", "1", *chosen], cwd=work, check=False)
    found = {name: status for name, status in outcomes(work, folder).items() if name in drawn}
    survivors = sorted(name for name, status in found.items() if status != "killed")
    counts = dict(Counter(found.values()).most_common())
    return Part({"seed": seed, "mutants": len(names), "drawn": len(drawn), **counts, "not_killed": survivors})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and writes the results."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", choices=FOLDERS)
    add("--count", type=int, default=300, help="mutants (%(default)s)")
    add("--seed", type=int, default=0, help="of the choice (%(default)s)")
    add("--work", type=Path, required=True, help="the folder of the copy; one for each of beamrank's")
    add("--again", action="store_true", help="run those again that were not killed")
    add("--output", type=Path, default=_ROOT / "benchmarks" / "results" / "mutants.json", help="(%(default)s)")
    options = parser.parse_args(given)
    start, work = time.monotonic(), options.work.resolve()
    part = measure(work, options.folder, options.count, options.seed, options.again)
    file = Results(options.output.resolve(), "mutants", {}, command_line("benchmarks.mutants", given), FOLDERS)
    file.write(options.folder, part, time.monotonic() - start)
    print(json.dumps(part.figures, indent=1))


if __name__ == "__main__":
    main()

"""Random mutants of a folder of beamrank/, and which of them the folder's own quick tests do not
notice.

    pip install mutmut==3.8.1
    python -m benchmarks.mutants commit

mutmut changes one expression of a function or method of a copy of the tracked files at a time, and
runs, in a forked process, the tests that call it, until one fails. Functions with decorators, such
as properties, and code outside of functions have no mutants. The draw follows the names, so that
few others are drawn after a change of the code. With `--work` a run of the same code goes on where
it was ended, and runs those again that no test noticed.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import hypothesis
import pytest

from benchmarks.commands import parser_of, work_folder
from benchmarks.results import Part, Results, command_line
from models.checkpoints import checkpoint

_ROOT = Path(__file__).resolve().parents[1]
# A test that fails, or ends Python. On a busy machine one that runs long is no sign.
_NOTICED = ("killed", "segfault")
FOLDERS = ("commit", "ranking", "join", "evaluation")
# Candidates that a corpus lists are tested with its format.
_MORE_TESTS = {
    "join": "    tests/contrib/formats/test_top1000.py\n    tests/contrib/formats/test_rank_llm.py"
}
_SEED, _COUNT = 0, 300
_CONFIG = """[mutmut]
source_paths=beamrank
only_mutate=beamrank/{folder}/*
also_copy=
    models
    transforms
    pipelines
    contrib
    benchmarks
    experiments
    README.md
    docs
    configs
pytest_add_cli_args=-pno:cacheprovider
    -pbenchmarks.mutants
    -mnot slow and not jvm and not data
pytest_add_cli_args_test_selection=tests/beamrank/{folder}
{more}
timeout_constant=5
timeout_multiplier=5
use_git_change_detection=false
"""


def pytest_configure() -> None:
    """As pytest's plugin: hypothesis draws the same each time, and does not look for the simplest
    input that fails.
    """
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", derandomize=True, deadline=None, phases=phases)
    hypothesis.settings.load_profile("mutants")
    # A run of these tests may score in the process that mutmut forks: with one thread torch goes on
    # after that.
    checkpoint._first.clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The quickest tests first, by how long they took when mutmut looked for the functions that
    each one calls.
    """
    stats = Path("mutmut-stats.json")
    seconds = json.loads(stats.read_text())["duration_by_test"] if stats.exists() else {}
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))


def copy_tree(work: Path, folder: str) -> None:
    """The tracked files as they are now, and mutmut's configuration."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, names.split("\0")):
        target = work / name
        # mutmut makes mutants of newer files again.
        if not target.exists() or target.read_bytes() != (_ROOT / name).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_ROOT / name, target)
    # Which tests call a function may have changed.
    (work / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    (work / "setup.cfg").write_text(_CONFIG.format(folder=folder, more=_MORE_TESTS.get(folder, "")))


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


def outcomes(work: Path, folder: str) -> dict[str, tuple[str, float]]:
    """What became of each mutant that was run, and the seconds of its tests."""
    from mutmut.stats import status_by_exit_code

    metas = [
        json.loads(path.read_text())
        for path in (work / "mutants" / "beamrank" / folder).glob("*.meta")
    ]
    return {
        name: (status_by_exit_code[code], meta["durations_by_key"].get(name) or 0.0)
        for meta in metas
        for name, code in meta["exit_code_by_key"].items()
        if code is not None
    }


def measure(work: Path, folder: str) -> Part:
    """Runs the mutants, at the lowest priority; those that survive are in the figures by name."""
    copy_tree(work, folder)
    names = all_mutants(work, folder)
    drawn = sorted(names, key=lambda name: hashlib.sha256(f"{_SEED} {name}".encode()).digest())
    drawn = drawn[:_COUNT]
    noticed = {name for name, (status, _) in outcomes(work, folder).items() if status in _NOTICED}
    if left := [name for name in drawn if name not in noticed]:
        nice = ["nice", "-n", "19", sys.executable, "-m"]
        command = [*nice, "mutmut", "run", "--max-children", "1", *left]
        subprocess.run(command, cwd=work, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    ran = {name: outcome for name, outcome in outcomes(work, folder).items() if name in drawn}
    counts = dict(Counter(status for status, _ in ran.values()).most_common())
    survivors = sorted(name for name, (status, _) in ran.items() if status not in _NOTICED)
    shown = {"seed": _SEED, "mutants": len(names), "drawn": len(drawn), "run": len(ran), **counts}
    seconds = round(sum(seconds for _, seconds in ran.values()), 1)
    return Part({**shown, "seconds_of_tests": seconds, "not_killed": survivors})


_OPTIONS = {
    "--work": (Path, "keep the copy here, one for each folder, instead of in a temporary folder"),
    "--output": (_ROOT / "benchmarks" / "results" / "mutants.json", "the results"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and writes the results."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = parser_of("benchmarks.mutants", __doc__, _OPTIONS)
    parser.add_argument("folder", choices=FOLDERS)
    options = parser.parse_args(given)
    start, command = time.monotonic(), command_line("benchmarks.mutants", given)
    file = Results(options.output.resolve(), "mutants", {}, command, FOLDERS)
    with work_folder(options.work) as work:
        part = measure(work, options.folder)
    file.write(options.folder, part, time.monotonic() - start)
    print(json.dumps(part.figures, indent=1))


if __name__ == "__main__":
    main()

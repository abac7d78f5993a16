"""Programs that begin at one moment."""

import subprocess
from collections.abc import Sequence


def run_together(commands: Sequence[Sequence[str]], seconds: float) -> list[str]:
    """Starts programs, tells them to go once each has said that it is ready, and gives what they print after that."""
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in commands
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [process.communicate(timeout=seconds)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return printed

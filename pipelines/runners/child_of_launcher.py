"""Runs a program that must not outlive its caller: `python child_of_launcher.py FOLDER PROGRAM ARGUMENT ...`.

A launcher that is killed with SIGKILL would leave its job server, a Java process, running forever. FOLDER holds the
program's temporary files and is removed with it. Runs by its path, with the standard library alone.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from types import FrameType

_POLL_SECONDS = 1.0


def main(folder: str, *command: str) -> int:
    """Runs a program until it ends, this process is terminated, or the launcher ends."""
    launcher = os.getppid()
    # This process ends after the program has ended and its folder is removed.
    signal.signal(signal.SIGTERM, _end)
    code = 1
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": folder}) as program:
        with contextlib.suppress(SystemExit):
            code = _outlast(program, launcher)
        program.kill()
    shutil.rmtree(folder, ignore_errors=True)
    return code


def _outlast(program: "subprocess.Popen[bytes]", launcher: int) -> int:
    while os.getppid() == launcher:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = program.wait(_POLL_SECONDS)
            # As shells do: 137 is SIGKILL, which Linux sends when memory runs out.
            return code if code >= 0 else 128 - code
    return 1


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The console script: sets the process up, runs a command, and turns its end into an exit code."""

import contextlib
import logging
import os
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

from beamrank.errors import BeamrankError
from pipelines.children import end_children, prepare_environment

_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)


class _Interrupted(BaseException):
    """A signal asked for the end. Not KeyboardInterrupt, which typer would turn into a silent exit."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise _Interrupted(number)


def main() -> NoReturn:
    """Runs `beamrank` with the arguments of this process."""
    # Before Beam is imported: it and its friends warn of much that is not the user's business; what matters is raised.
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    # A logger's filter sees what is logged on itself alone, and only Beam logs on the root.
    logging.getLogger().addFilter(lambda _: False)
    for number in _INTERRUPTIONS:
        # Whoever started this process in the background may have made it deaf to Ctrl-C.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    _leave(_run())


def _run() -> int:
    try:
        from pipelines.cli import app

        prepare_environment()
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except BeamrankError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except _Interrupted as interruption:
        print("interrupted: finished shards are kept; run the same command again to resume", file=sys.stderr)
        return interruption.exit_code
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """Ends the process at once: a pipeline that hangs would keep its threads, and so this process, for ever."""
    for number in _INTERRUPTIONS:
        signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    # Everything is said; what Beam's threads print while they lose their workers is of no use.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        end_children()
        os._exit(code)


if __name__ == "__main__":
    main()

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


class _Terminated(BaseException):
    """SIGTERM arrived."""


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise _Terminated


def main() -> NoReturn:
    """Runs `beamrank` with the arguments of this process."""
    # Before Beam is imported: it and its friends warn of much that is not the user's business; what matters is raised.
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, _terminate)
    _leave(_run())


def _run() -> int:
    try:
        from pipelines.cli import app
        from pipelines.runners import prepare_environment

        prepare_environment()
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except BeamrankError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, _Terminated) as interruption:
        print("interrupted: finished shards are kept; run the same command again to resume", file=sys.stderr)
        return 130 if isinstance(interruption, KeyboardInterrupt) else 143
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        return 0
    except OSError as error:
        print(f"error: {error}. Finished shards are kept; run the same command again to resume", file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """Ends the process at once: a pipeline that hangs would keep its threads, and so this process, for ever."""
    from pipelines.watch import end_children

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end_children()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()

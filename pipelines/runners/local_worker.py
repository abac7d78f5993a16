"""A worker process of the local runner: Beam's own, which logs to the run's log and ignores Ctrl-C."""

import contextlib
import logging
import os
import signal
import sys
import threading
import time

from beamrank.config.device import number_worker
from beamrank.logs import INHERITED, LoggedStderr, join_log

_POLL_SECONDS = 1.0


def main() -> None:
    """Serves the launcher whose address Beam passes in the environment."""
    # A terminal sends Ctrl-C to the whole process group; the launcher ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before Beam is imported, which would log to standard error where the root logger has no handler.
    logging.getLogger().addHandler(logging.NullHandler())
    if INHERITED in os.environ:
        join_log(os.environ[INHERITED])
    if "WORKER_ID" in os.environ:
        number_worker(os.environ["WORKER_ID"])
    launcher = os.getppid()
    threading.Thread(target=_end_with, args=(launcher,), daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    with contextlib.redirect_stderr(LoggedStderr()):
        try:
            sdk_worker_main.main(sys.argv)
        except Exception:
            if os.getppid() != launcher:
                # The launcher was killed.
                os._exit(1)
            raise


def _end_with(launcher: int) -> None:
    """Ends this process when the launcher is killed: Beam's worker may then wait for ever for a connection."""
    while os.getppid() == launcher:
        time.sleep(_POLL_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()

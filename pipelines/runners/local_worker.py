"""A worker process of the local runner: Beam's own, which neither talks nor listens to Ctrl-C."""

import contextlib
import logging
import os
import signal
import sys


def main() -> None:
    """Serves the launcher whose address Beam has put into the environment."""
    # A terminal sends Ctrl-C to all processes in the foreground; the launcher ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before Beam is imported, which would log to standard error. What fails in a job reaches the launcher with it.
    logging.getLogger().addHandler(logging.NullHandler())
    launcher = os.getppid()
    from apache_beam.runners.worker import sdk_worker_main

    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        try:
            sdk_worker_main.main(sys.argv)
        except Exception:
            if os.getppid() != launcher:
                # The launcher was killed: there is nobody to work for, or to tell.
                os._exit(1)
            raise


if __name__ == "__main__":
    main()

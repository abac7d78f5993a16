"""A worker process of the local runner: Beam's own, which neither talks nor listens to Ctrl-C."""

import logging
import signal
import sys


def main() -> None:
    """Serves the launcher whose address Beam has put into the environment."""
    # A terminal sends Ctrl-C to all processes in the foreground; the launcher ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before Beam is imported, which would log to standard error. What goes wrong reaches the launcher with the job.
    logging.getLogger().addHandler(logging.NullHandler())
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()

"""The console script `beamrank`, and `python -m beamrank`: makes sure that the commands are ours,
and runs them.
"""

import importlib
import sys
from typing import NoReturn

from beamrank.errors import PreflightError
from beamrank.plugins import check_packages


def main() -> NoReturn:
    """Runs `beamrank` with the arguments of this process."""
    try:
        check_packages()
    except PreflightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    importlib.import_module("pipelines.main").main()
    raise AssertionError


if __name__ == "__main__":
    main()

"""What the tests share."""

import os
import signal
from pathlib import Path

import pytest

# As the command line sets it, before anything imports torch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# A shell starts what it runs in the background deaf to Ctrl-C, and deafness is inherited; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

_SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real collections that stands beside the project in CI; a user's machine does not have it."""
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"the real collections are not here: no folder {_SHARED_DATA}")
    return _SHARED_DATA

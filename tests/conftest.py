"""What the tests share."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from beamrank.storage import files
from tests import ROOT

if TYPE_CHECKING:
    from tests.support.checkpoints import Pair

# As the command line sets it, before anything imports torch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# gcsfs reads it as it is imported. Otherwise it asks Google for the kind of each bucket, and waits
# for a minute.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
# A shell starts background processes with Ctrl-C ignored, which they inherit; some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No test survives a power failure, and syncing takes a tenth of the time of the tests.
vars(os)["fsync"] = lambda _: None
# An example may take any time on a busy machine.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")

_SHARED_DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real collections that stands beside the project in CI; a user's machine does
    not have it.
    """
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"the real collections are not here: no folder {_SHARED_DATA}")
    return _SHARED_DATA


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs whose content is read for a hash."""
    urls: list[str] = []
    original = files.sha256

    def noted(url: str) -> str:
        urls.append(url)
        return original(url)

    monkeypatch.setattr(files, "sha256", noted)
    return urls


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> "Pair":
    """Random BERTs of two narrow layers with MiniLM's vocabulary."""
    # torch takes seconds to import, and most of tests/beamrank does without.
    from tests.support.checkpoints import save_pair

    return save_pair(tmp_path_factory.mktemp("checkpoints"), vocabulary=None)


@pytest.fixture(scope="session")
def mono_checkpoint(checkpoints: "Pair") -> str:
    return checkpoints.mono


@pytest.fixture(scope="session")
def duo_checkpoint(checkpoints: "Pair") -> str:
    return checkpoints.duo

"""Processes that were forked from one that computed with torch: its threads are missing there, and torch would wait."""

import os
from typing import Literal

from beamrank.errors import BeamrankError

_Use = Literal["load", "score"]
# After which uses of another process a use hangs. A model that was loaded and not used can score in several processes.
_HANGS_AFTER: dict[_Use, tuple[_Use, ...]] = {"load": ("load", "score"), "score": ("score",)}
_first: dict[_Use, int] = {}


def check_process(use: _Use) -> None:
    """Notes that this process is about to use torch.

    Raises:
        BeamrankError: it was forked from one that used torch before, and would hang.
    """
    process_id = os.getpid()
    earlier = next((_first[each] for each in _HANGS_AFTER[use] if _first.get(each, process_id) != process_id), None)
    if earlier is not None:
        raise BeamrankError(
            f"this process ({process_id}) was forked from one that computed with torch ({earlier}), whose threads do "
            "not survive a fork: it would wait for them for ever. Start workers with the `spawn` method, or before the "
            "first model is loaded"
        )
    _first.setdefault(use, process_id)

"""What processes that share an output get from the operating system: its calls, locks and clocks,
and the names of processes. Tests of the commit protocol put a simulated machine in its place.
"""

import fcntl
import os
import socket
import time
import uuid
from typing import Any

from fsspec.implementations import local


class System:
    """The functions of these modules, by their own names."""

    def __getattr__(self, name: str) -> Any:
        modules = (os, fcntl, time, socket, uuid, local)
        return getattr(next((module for module in modules if hasattr(module, name)), os), name)


system = System()

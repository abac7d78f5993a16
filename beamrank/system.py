"""What processes that share an output get from the operating system: its calls, locks and clocks,
and the names of processes. Tests of the commit protocol put a simulated machine in its place.
"""

import fcntl
import os
import socket
import time
import uuid
from typing import Any


class System:
    """The functions of these modules, by their own names, and fsspec's file system."""

    def __getattr__(self, name: str) -> Any:
        modules = (os, fcntl, time, socket, uuid)
        return getattr(next((module for module in modules if hasattr(module, name)), os), name)

    @staticmethod
    def local_filesystem(**options: Any) -> Any:
        """What reads and writes local files."""
        # fsspec takes a tenth of a second to import, and a description of the machine does without.
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(**options)


system = System()

"""Processes of this machine by what they leave in files: whether the one that wrote something is still running."""

import hashlib
import os
import socket
from functools import cache

import psutil

# Each process that asks computes the start time of a process, and rounding differs.
_SAME_START_SECONDS = 2.0
_MACHINE_DIGITS = 8


def start_seconds() -> float:
    """When this process started, in seconds since 1970."""
    return _start_seconds(os.getpid())


@cache
def _start_seconds(pid: int) -> float:
    """By pid, since a forked process has a start of its own."""
    return float(psutil.Process(pid).create_time())


def is_running(pid: int, started: float) -> bool:
    """Whether a process of this machine is still running, and its pid not another one's by now."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) < _SAME_START_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        # The processes of other users may be hidden.
        return bool(psutil.pid_exists(pid))


@cache
def machine_id() -> str:
    """Names what gives a pid its meaning: a host since it was last started, and a container on it."""
    parts = [socket.gethostname()]
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts.append(file.read().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        # Not Linux.
        parts.append("")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_MACHINE_DIGITS]

"""The machines that did the shards of an output. A receipt names one by the digest of its description."""

from dataclasses import asdict
from functools import cache

from pydantic import TypeAdapter

from beamrank.machine import Machine, describe_machine
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, checked_json, checked_record, digest, sha256

FOLDER = "machines"
_ENDING = ".json"
_MACHINE = TypeAdapter(Machine)


def record_machine(output: str) -> str:
    """Describes this machine in an output.

    Returns:
        What receipts call it.
    """
    content = checked_json(asdict(describe_machine()))
    name = machine_name(content)
    url = storage.join(output, FOLDER, name)
    # At a store, a request of a process and not of each of its shards. A local output may be deleted and made again.
    (_publish_once if storage.is_remote(url) else storage.publish_content)(url, content)
    return name.removesuffix(_ENDING)


@cache
def _publish_once(url: str, content: bytes) -> None:
    storage.publish_content(url, content)


def read_machine(output: str, name: str) -> Machine | None:
    """The machine that a receipt names; None if its description is missing or damaged."""
    try:
        return checked_record(_MACHINE, storage.read_bytes(storage.join(output, FOLDER, f"{name}{_ENDING}")))
    except FileNotFoundError:
        return None


def machine_name(content: bytes) -> str:
    """The name of the file with a machine's description."""
    return f"{sha256(content)[:SHORT]}{_ENDING}"


def arithmetic_digest(machine: Machine, backend: str) -> str:
    """Names what computes on a machine: where it is the same, a CPU gives an input the same score."""
    return digest(machine.arithmetic(backend))[:SHORT]

"""The machines that did the shards of an output. A receipt names one by the digest of its description."""

from dataclasses import asdict

from pydantic import TypeAdapter

from beamrank.digests import SHORT, checked_json, checked_record, sha256
from beamrank.machine import Machine, describe_machine
from beamrank.storage import files as storage

FOLDER = "machines"
_MACHINE = TypeAdapter(Machine)


def record_machine(output: str) -> str:
    """Describes this machine in an output, unless another process of it did.

    Returns:
        What receipts call it.
    """
    content = checked_json(asdict(describe_machine()))
    name = sha256(content)[:SHORT]
    url = _url(output, name)
    if not storage.exists(url):
        storage.publish_content(url, content)
    return name


def read_machine(output: str, name: str) -> Machine | None:
    """The machine that a receipt names; None if its description is missing or damaged."""
    try:
        return checked_record(_MACHINE, storage.read_bytes(_url(output, name)))
    except FileNotFoundError:
        return None


def _url(output: str, name: str) -> str:
    return storage.join(output, FOLDER, f"{name}.json")

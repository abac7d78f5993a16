"""The metadata of a run file in the schema of ir_metadata (https://www.ir-metadata.org), as a YAML file beside it."""

import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from beamrank.commit.receipts import Manifest, read_machine
from beamrank.config.run import RunConfig
from beamrank.machine import Machine, describe_machine
from beamrank.storage import files as storage
from beamrank.storage.documents import sha256

ENDING = ".metadata.yaml"
_SCHEMA_VERSION = 0.1

Component = Mapping[str, Any]


def write_metadata(
    run: str,
    run_tag: str,
    machine: Machine,
    retrieval: Sequence[Component],
    data: Component | None = None,
    goal: Component | None = None,
) -> None:
    """Writes the metadata of a run file, with the command of this process.

    Args:
        run: the URL of the run file.
        run_tag: its sixth column.
        machine: that made it.
        retrieval: the rankers, in order.
        data: the collection.
        goal: what the run is evaluated for.
    """
    metadata = {
        "schema-version": _SCHEMA_VERSION,
        "run-version": 1.0,
        "tag": run_tag,
        "platform": _platform(machine),
        "research goal": goal or {},
        "implementation": {**_executable(*sys.argv), "source": {"lang": ["Python"]}},
        "method": {"automatic": True, "score ties": "order of the previous ranker", "retrieval": list(retrieval)},
        # Only the user knows it.
        "actor": {},
        "data": data or {},
    }
    text = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    storage.replace(f"{run}{ENDING}", _checked(text.encode()))


def is_unchanged(content: bytes) -> bool:
    """Whether a file of metadata is as it was written."""
    return content == _checked(content.partition(b"\n")[2])


def _checked(content: bytes) -> bytes:
    """A file whose first line, a comment, detects a flipped bit in the others."""
    return b"# sha256: %b\n%b" % (sha256(content).encode(), content)


def machine_of(output: str, stage: Manifest) -> Machine:
    """The machine that did the most shards of a stage; this one if its description is missing."""
    ((name, _),) = Counter(receipt.machine for receipt in stage.receipts).most_common(1)
    return read_machine(output, name) or describe_machine()


def describe_data(config: RunConfig) -> Component:
    """The test collection."""
    paths = {
        "source": config.corpus.path,
        "qrels": getattr(config.qrels, "path", config.qrels),
        "topics": config.topics.path,
    }
    named = {"name": storage.name(config.corpus.path), **paths}
    return {"test collection": {key: value for key, value in named.items() if value is not None}}


def _platform(machine: Machine) -> Component:
    libraries = [f"{name}=={version}" for name, version in machine.libraries.items()]
    return {
        "hardware": {
            "cpu": {"model": machine.processor, "number of cores": machine.cores},
            **({"gpu": {"model": ", ".join(machine.gpus)}} if machine.gpus else {}),
            "ram": f"{machine.memory_gib} GiB",
        },
        "operating system": {"kernel": machine.system},
        "software": {
            "libraries": {"python": [f"python=={machine.python}", *libraries]},
            "retrieval toolkit": [each for each in libraries if each.startswith("pyserini")],
        },
    }


def _executable(program: str, *arguments: str) -> Component:
    """The command without Beam's flags, which can hold credentials, as can the arguments of another program."""
    if storage.name(program) != "beamrank":
        return {}
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return {"executable": {"cmd": shlex.join(["beamrank", *ours])}}

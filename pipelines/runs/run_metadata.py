"""The metadata of a run file in the schema of ir_metadata (https://www.ir-metadata.org), as a YAML
file beside it.
"""

import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, read_machine
from beamrank.config.run import RunConfig
from beamrank.machine import Machine, describe_machine
from beamrank.storage import files as storage
from beamrank.storage.documents import sha256
from models.stages.base import RANKED_BY
from pipelines.runs.run_file import RunFile

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
    """Writes the metadata of the run file at a URL, with the command of this process.

    `retrieval` are the rankers, in order, `data` is the collection, and `goal` what the run is
    evaluated for.
    """
    metadata = {
        "schema-version": _SCHEMA_VERSION,
        "run-version": 1.0,
        "tag": run_tag,
        "platform": _platform(machine),
        "research goal": goal or {},
        "implementation": {**_executable(*sys.argv), "source": {"lang": ["Python"]}},
        "method": {
            "automatic": True,
            "score ties": "order of the previous ranker",
            "retrieval": list(retrieval),
        },
        # Only the user knows it.
        "actor": {},
        "data": data or {},
    }
    text = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    storage.replace(f"{run}{ENDING}", _checked(text.encode(), storage.name(run)))


def is_unchanged(content: bytes, base: str) -> bool:
    """Whether a file of metadata is as it was written for a run of this name."""
    return content == _checked(content.partition(b"\n")[2], base)


def _checked(content: bytes, base: str) -> bytes:
    """A file whose first line, a comment, detects a flipped bit in the others, and another run's
    metadata.
    """
    return b"# sha256: %b\n%b" % (sha256(os.fsencode(base) + content).encode(), content)


def write_run_metadata(
    plan: Plan, config: RunConfig, file: RunFile, stages: Sequence[Any], sealed: Manifest
) -> None:
    """Writes the metadata of a run of a plan; the machine is the one that did the most shards of
    its `sealed` stage.
    """
    ((name, _),) = Counter(receipt.machine for receipt in sealed.receipts).most_common(1)
    machine = read_machine(plan.output, name) or describe_machine()
    goal = (
        {}
        if config.judgments is None
        else {"evaluation": {"reported measures": list(config.measures)}}
    )
    retrieval = list(describe_retrieval(stages, file))
    write_metadata(file.url(plan), config.run_tag, machine, retrieval, describe_data(config), goal)


def describe_retrieval(stages: Sequence[Any], file: RunFile) -> Iterator[Component]:
    """The stages up to the run's, with the settings that decide its scores."""
    before: str | None = None
    for stage in stages:
        if not stage.ranks:
            continue
        is_last = stage.name == file.stage
        varied = replace(stage, **dict(file.variant)) if is_last else stage
        # The first stage's folder has a name of ours.
        name = (
            stage.method
            if before is None or stage.name == stage.type_name
            else f"{stage.method}:{stage.name}"
        )
        settings = {
            **({} if before is None else {"checkpoint": getattr(stage, "checkpoint", None)}),
            **{key: value for key, value in stage.keys.items() if key != RANKED_BY},
            **varied.described,
            **({"k": file.k} if is_last and file.k is not None else {}),
            "reranks": before,
        }
        yield {
            "name": name,
            **{key: value for key, value in settings.items() if value not in (None, {})},
        }
        if is_last:
            return
        before = name


def describe_data(config: RunConfig) -> Component:
    """The test collection."""
    facts = {
        "name": storage.name(config.corpus.path),
        "source": config.corpus.path,
        "qrels": getattr(config.qrels, "path", None),
        "topics": config.topics.path,
    }
    return {"test collection": {key: value for key, value in facts.items() if value is not None}}


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
            "retrieval toolkit": [
                library for library in libraries if library.startswith("pyserini")
            ],
        },
    }


def _executable(program: str, *arguments: str) -> Component:
    """The command without Beam's flags, which can hold credentials, as can the arguments of another
    program.
    """
    if storage.name(program) != "beamrank":
        return {}
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return {"executable": {"cmd": shlex.join(["beamrank", *ours])}}

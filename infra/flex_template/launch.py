"""The program of the Dataflow flex template: `run --no-wait` of one stage, from the template's
parameters.

Dataflow's launcher gives the template's parameters and Beam's own flags in one list, `--name=value`
each. A parameter is a key of the configuration: `mono_k` is `mono.k`. Dataflow starts the job that
this program writes to a file, so it must not wait for one.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import TypeAdapter

from beamrank.config.run import RunConfig
from beamrank.section import keys


class Parameter(NamedTuple):
    """A key of the configuration as a parameter: `key` is dotted, `schema` is JSON schema without
    the null.
    """

    key: str
    schema: dict[str, Any]

    @property
    def name(self) -> str:
        """The parameter's name, in which Dataflow allows no dot."""
        return self.key.replace(".", "_")

    def override(self, value: str) -> str:
        """The argument of `--set`; a text is quoted, or YAML would make a truth value of `no`."""
        return f"{self.key}={json.dumps(value) if self.schema.get('type') == 'string' else value}"


def parameters() -> Iterator[Parameter]:
    """Every key of the configuration, in its order."""
    for key, field in keys(RunConfig):
        annotated: Any = (
            Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        )
        schema = TypeAdapter(annotated).json_schema()
        choices = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        # The first of the ways to write a value.
        first = choices[0].get("anyOf", choices)[0]
        default = {} if field.is_required() or field.default is None else {"default": field.default}
        yield Parameter(key, {**first, **default, "description": field.description})


def command(arguments: Sequence[str]) -> list[str]:
    """The arguments of `beamrank` for those of the launcher."""
    accepted = list(parameters())
    parser = argparse.ArgumentParser(prog="flex", allow_abbrev=False)
    parser.add_argument("--config", required=True)
    parser.add_argument("--stage", required=True)
    # The launcher passes its own runner; ours replaces it.
    parser.add_argument("--runner")
    for parameter in accepted:
        parser.add_argument(f"--{parameter.name}")
    options, beam_flags = parser.parse_known_args(arguments)
    values = vars(options)
    overrides = [
        word
        for parameter in accepted
        if values[parameter.name] is not None
        for word in ("--set", parameter.override(values[parameter.name]))
    ]
    stage = ["--stage", options.stage, "--no-wait"]
    return ["run", options.config, "--runner", "dataflow", *stage, *overrides, "--", *beam_flags]


if __name__ == "__main__":
    from pipelines.main import main

    sys.argv[1:] = command(sys.argv[1:])
    main()

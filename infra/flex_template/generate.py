"""Writes the flex template's metadata.json from the configuration's model: `python -m
infra.flex_template.generate`.
"""

import json
from pathlib import Path
from typing import Any

from infra.flex_template.launch import Parameter, parameters

METADATA = Path(__file__).with_name("metadata.json")
_URL = "^gs://.+$"
_PATTERNS = {
    "integer": "^-?[0-9]+$",
    "number": "^[0-9]+(\\.[0-9]+)?$",
    "boolean": "^(true|false)$",
    "array": "^\\[.*\\]$",
}


def metadata() -> dict[str, Any]:
    """The template's metadata as `gcloud dataflow flex-template build --metadata-file` takes it."""
    return {
        "name": "beamrank",
        "description": "One stage of BM25, monoBERT and duoBERT re-ranking. Completed stages are "
        "skipped.",
        "parameters": [
            {
                "name": "config",
                "label": "Configuration",
                "helpText": "The gs:// URL of the run's YAML configuration "
                "(docs/reference/configuration.md).",
                "regexes": [_URL],
            },
            {
                "name": "stage",
                "label": "Stage",
                "helpText": "The stage to run: retrieve, tokenize, mono, duo, or the name of a "
                "stage of `cascade`; the stages before it must be complete.",
                "regexes": [r"^(?!runs$)[\w-]+$"],
            },
            *[_described(parameter) for parameter in parameters()],
        ],
    }


def _described(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "label": parameter.key,
        "helpText": f"{' '.join(parameter.schema['description'].split())} "
        f"Replaces `{parameter.key}`: {_value(parameter.schema)}.",
        "isOptional": True,
        **_regexes(parameter.schema),
    }


def _value(schema: dict[str, Any]) -> str:
    what = {
        "string": "a text",
        "integer": "an integer",
        "number": "a number",
        "boolean": "true or false",
    }
    text = "a YAML list, [a, b]" if schema["type"] == "array" else what[schema["type"]]
    if "enum" in schema:
        text = f"one of {', '.join(schema['enum'])}"
    for key, words in (
        ("minimum", "at least"),
        ("exclusiveMinimum", "more than"),
        ("maximum", "at most"),
    ):
        if key in schema:
            text += f", {words} {schema[key]}"
    if "default" in schema:
        text += f"; by default {json.dumps(schema['default'])}"
    return text


def _regexes(schema: dict[str, Any]) -> dict[str, list[str]]:
    if "enum" in schema:
        return {"regexes": [_choice(schema["enum"])]}
    pattern = schema.get("pattern") or _PATTERNS.get(schema["type"])
    return {"regexes": [pattern]} if pattern else {}


def _choice(words: Any) -> str:
    return f"^({'|'.join(words)})$"


def render() -> str:
    """The file's content."""
    return json.dumps(metadata(), indent=2) + "\n"


if __name__ == "__main__":
    METADATA.write_text(render(), encoding="utf-8")

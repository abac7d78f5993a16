"""The problems that pydantic finds with a value, in our words."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# By pydantic's types of errors; the first that matches counts.
_PROBLEMS = {
    "value_error|assertion_error": "{error}",
    "missing.*": "it is required: give it",
    "extra_forbidden": "unknown key",
    "string_type": "it must be text",
    "string_unicode": "it is not UTF-8, as the files must be that hold the configuration: give "
    "another name",
    "string_too_short": "it is too short: give {min_length} or more characters",
    "string_pattern_mismatch": "it must match the pattern {pattern}",
    "too_short": "it is too short: give {min_length} or more values",
    "too_long": "it is too long: give at most {max_length} values",
    "int_.*": "it must be a whole number",
    "finite_number": "it must be a finite number",
    "float_.*": "it must be a number",
    "bool_.*": "it must be true or false",
    "greater_than": "it must be more than {gt}",
    "greater_than_equal": "it must be {ge} or more",
    "less_than": "it must be less than {lt}",
    "less_than_equal": "it must be {le} or less",
    "literal_error|enum": "it must be {expected}",
    "(list|tuple|set|frozen_set)_type": "it must be a list",
    "(dict|model|model_attributes|dataclass|named_tuple)_type": "it must be keys with values",
    "recursion_.*": "it is nested too deeply, or holds itself",
    ".*": "its value cannot be used",
}


def problem_of(finding: Mapping[str, Any]) -> str:
    """The problem of one of the `errors()` of a ValidationError."""
    problem = next(
        text for kinds, text in _PROBLEMS.items() if re.fullmatch(kinds, finding["type"])
    )
    context = finding.get("ctx", {})
    return problem.format_map(
        {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in context.items()
        }
    )


def place_of(finding: Mapping[str, Any], values: Any) -> str:
    """The keys that lead to it in the checked values, without the types that pydantic adds."""
    keys = []
    for part in finding["loc"]:
        with suppress(LookupError, TypeError):
            values = values[part]
            keys.append(part)
    missing = finding["loc"][-1:] if finding["type"] == "missing" else ()
    return ".".join(map(str, (*keys, *missing)))

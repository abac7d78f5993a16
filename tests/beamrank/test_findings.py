"""Every error of pydantic has a text of ours, with the place where the user finds the value."""

from typing import Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticKnownError
from pydantic_core.core_schema import ErrorType

from beamrank.findings import place_of, problem_of

_CONTEXT: dict[str, Any] = {
    "actual_length": 1,
    "attribute": "a",
    "class": "C",
    "class_name": "C",
    "decimal_places": 1,
    "discriminator": "d",
    "encoding": "e",
    "encoding_error": "e",
    "error": "the cause",
    "expected": "'a' or 'b'",
    "expected_schemes": "s",
    "expected_tags": "t",
    "expected_version": 4,
    "field_type": "Tuple",
    "function_name": "f",
    "ge": 0.0,
    "gt": 0.5,
    "le": 2**31,
    "lt": 1.0,
    "max_digits": 1,
    "max_length": 3,
    "method_name": "m",
    "min_length": 2,
    "multiple_of": 2,
    "pattern": "^a$",
    "tag": "t",
    "tz_actual": 1,
    "tz_expected": 2,
    "whole_digits": 1,
}


@pytest.mark.parametrize(
    "kind", sorted({*get_args(ErrorType)} - {"value_error", "assertion_error"})
)
def test_each_error_has_a_text_of_ours(kind):
    problem = problem_of({"type": kind, "ctx": _CONTEXT})
    theirs = PydanticKnownError(kind, _CONTEXT).message()
    assert problem
    assert problem.lower() not in theirs.lower()
    assert "nput" not in problem
    assert "{" not in problem


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("greater_than_equal", "it must be 0 or more"),
        ("greater_than", "it must be more than 0.5"),
        ("less_than_equal", "it must be 2147483648 or less"),
        ("literal_error", "it must be 'a' or 'b'"),
        ("value_error", "the cause"),
    ],
)
def test_text_has_the_bounds(kind, problem):
    assert problem_of({"type": kind, "ctx": _CONTEXT}) == problem


class _Inner(BaseModel):
    a: int | list[int] = 0
    b: int


class _Outer(BaseModel):
    rows: list[_Inner]


@pytest.mark.parametrize(
    ("row", "place"),
    [({"a": "x", "b": 1}, "rows.0.a"), ({"a": ["x"], "b": 1}, "rows.0.a"), ({}, "rows.0.b")],
)
def test_place_has_the_users_keys_alone(row, place):
    values = {"rows": [row]}
    with pytest.raises(ValidationError) as error:
        TypeAdapter(_Outer).validate_python(values)
    assert place_of(error.value.errors()[0], values) == place

"""Damaged or foreign documents in an output: an error, or treated as missing; never a traceback."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

import pytest

from beamrank.commit.check import find_garbage, verify_stages
from beamrank.commit.plan import Plan, load_plan, read_plan
from beamrank.commit.status import read_status
from beamrank.errors import BeamrankError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, parse_json
from models.lucene.index import INFO_NAME, require_index
from tests.support.outputs import (
    files_below,
    finished_output,
    make_plan,
    scoring_record,
    tokenize_record,
)
from tests.support.refusals import refuses

_DEEP = 200_000
_NUMBER: Any = 5
_WORD: Any = "pairs"
_CONTENTS = {
    "nothing": b"",
    "cut": b'{"a": [',
    "no UTF-8": b"\xff\xfe{}",
    "NUL": b"\0\0",
    "null": b"null",
    "number": b"1",
    "text": b'"x"',
    "list": b"[[1]]",
    "object": b"{}",
    "infinity": b'{"seconds": Infinity}',
    "digits": b"9" * 5000,
    "deep lists": b"[" * _DEEP + b"]" * _DEEP,
    "deep objects": b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    "deep value": b'{"plan": ' + b"[" * _DEEP + b"]" * _DEEP + b"}",
    "a bit over the limit": b'{"check": "0", "a": ' + b"[" * 990 + b"]" * 990 + b"}",
}
_DOCUMENTS = {
    "plan": "plan-*.json",
    "pointer": "current-plan.json",
    "receipt": "mono/receipts/00001-*.json",
    "manifest": "mono/manifest-*.json",
    "scan report": "tokenize-*/scans/unit-*.json",
}
_OTHERS: tuple[object, ...] = (None,)
_MORE: tuple[object, ...] = (-1, 1e308, [], {"a": 1}, "x", 10**30)
_OUTPUT = "memory:///malformed"


def _read_all(output: str = _OUTPUT) -> None:
    """Runs status, verify and gc; each gives its result, or an error of ours."""
    readers: list[Callable[[], object]] = [
        lambda: read_status(read_plan(output)),
        lambda: verify_stages(output),
        lambda: find_garbage(output, 1e12, 0.0),
    ]
    for read in readers:
        with contextlib.suppress(BeamrankError):
            read()


@pytest.fixture(scope="module")
def finished() -> dict[str, bytes]:
    """The files of a finished output at a store in memory."""
    finished_output(_OUTPUT)
    return {url: storage.read_bytes(url) for url in files_below(_OUTPUT)}


@pytest.fixture(params=_DOCUMENTS.values(), ids=list(_DOCUMENTS))
def document(finished: dict[str, bytes], request: pytest.FixtureRequest) -> Iterator[str]:
    """One document of it, which may be replaced."""
    (url,) = (url for url in finished if fnmatch(url, f"{_OUTPUT}/{request.param}"))
    yield url
    storage.replace(url, finished[url])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("content", _CONTENTS.values(), ids=_CONTENTS)
def test_malformed_document_gives_no_traceback(document, content):
    storage.replace(document, content)
    _read_all()


def _changed(values: dict[str, Any], others: tuple[object, ...]) -> Iterator[dict[str, Any]]:
    """One field at a time is of another type, is gone or is one too many; the same in the first
    list of objects.
    """
    for name in values:
        yield {key: value for key, value in values.items() if key != name}
        yield from ({**values, name: other} for other in others)
        if isinstance(values[name], list) and values[name] and isinstance(values[name][0], dict):
            yield from (
                {**values, name: [first, *values[name][1:]]}
                for first in _changed(values[name][0], others)
            )
    yield {**values, "extra": 1}


@pytest.mark.parametrize(
    "others", [_OTHERS, pytest.param(_MORE, marks=pytest.mark.slow)], ids=["some", "more"]
)
def test_document_of_other_types_gives_no_traceback(document, others):
    """Digests are right, as where somebody wrote the document with care."""
    values = json.loads(storage.read_bytes(document))
    values.pop("check", None)
    for changed in _changed(values, others):
        storage.replace(document, checked_json(changed))
        _read_all()


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        ((scoring_record("mono", "mono"),), "stage mono "),
        ((scoring_record("mono", "retrieve"),), "stage mono "),
        ((replace(tokenize_record(), inputs=(), corpus_digest=_NUMBER),), "corpus_digest: "),
        ((replace(scoring_record("mono"), schema=_WORD),), "schema: "),
    ],
)
def test_impossible_plan_is_refused(tmp_path, stages, reason):
    """Its name and its digests are right; stages that read each other would be looked at for
    ever.
    """
    base = make_plan(str(tmp_path))
    plan = Plan("tag", base.output, base.shards, stages, {})
    plan.publish()
    with pytest.raises(ValueError, match=reason):
        load_plan(str(tmp_path), plan.name)
    _read_all(str(tmp_path))


@pytest.mark.parametrize("content", _CONTENTS.values(), ids=_CONTENTS)
def test_malformed_index_info_is_refused(tmp_path, content):
    (tmp_path / INFO_NAME).write_bytes(content)
    with refuses(PreflightError, "damaged", file=INFO_NAME) as refusal:
        require_index(str(tmp_path))
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("content", ["[" * _DEEP, "NaN", '{"a": -Infinity}', "9" * 5000, "{", ""])
def test_parse_json_refuses_what_is_not_json(content):
    with pytest.raises(ValueError, match=r"."):
        parse_json(content)

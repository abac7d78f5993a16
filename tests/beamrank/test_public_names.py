"""`import beamrank`: what it offers, and how little it loads."""

import subprocess
import sys

import pytest

import beamrank

HEAVY = (
    "torch",
    "apache_beam",
    "pyarrow",
    "numpy",
    "pydantic",
    "fsspec",
    "transformers",
    "tokenizers",
    "models",
    "pipelines",
)


def test_import_of_beamrank_loads_no_library() -> None:
    code = (
        "import sys, beamrank; dir(beamrank); beamrank.__version__; beamrank.BeamrankError; beamrank.Topic; "
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "[]\n"


def test_import_of_rerank_loads_neither_torch_nor_beam() -> None:
    code = "import sys, beamrank; beamrank.rerank, beamrank.Reranker, beamrank.evaluate, beamrank.aggregate; "
    code += "print(sorted({'torch', 'apache_beam', 'transformers'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("name", beamrank.__all__)
def test_public_name_exists_and_is_documented(name: str) -> None:
    found = getattr(beamrank, name)
    assert name in dir(beamrank)
    if name != "__version__":
        assert found.__name__ == name
        assert found.__doc__


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'beamrank' has no attribute 'reranker'"):
        _ = beamrank.reranker

"""What a part loads when it is used: nothing that takes seconds and that it does without."""

import subprocess
import sys

import pytest

from tests.support.checkpoints import MINILM
from tests.support.models.families import save_case
from tests.support.models.tokenizers import save_tokenizer
from tests.support.tiers import slow_but

_ENGINES = ("apache_beam", "torch", "transformers", "pyserini", "jnius")
_LIBRARIES = (
    *_ENGINES,
    "pyarrow",
    "numpy",
    "pydantic",
    "fsspec",
    "tokenizers",
    "typer",
    "models",
    "pipelines",
)


@pytest.mark.parametrize(
    ("code", "unloaded"),
    slow_but(
        2,
        [
            (
                "import beamrank; dir(beamrank); beamrank.__version__; beamrank.BeamrankError; "
                "beamrank.Topic",
                _LIBRARIES,
            ),
            (
                "from beamrank import rerank, Reranker, evaluate, aggregate",
                ("torch", "apache_beam", "transformers"),
            ),
            ("from beamrank.machine import describe_machine; describe_machine()", _LIBRARIES),
            (
                "import beamrank.evaluation.evaluate, beamrank.ranking.rankings, "
                "beamrank.formats.run_writer",
                (*_ENGINES, "typer"),
            ),
            ("import models.stages.core", _ENGINES),
            ("import pipelines.shares", ("apache_beam", "torch", "jnius", "grpc")),
            (
                "from models.tokenizers.bert import load_bert; "
                f"load_bert({str(MINILM)!r}).encode(['a'], 5)",
                _ENGINES,
            ),
            (
                "from models.checkpoints.checkpoint import resolve_checkpoint as find; "
                "find('FOLDER', 'mono').check_weights()",
                _ENGINES,
            ),
        ],
    ),
)
def test_part_loads_no_library_that_it_does_without(code, unloaded, tmp_path):
    save_case(tmp_path, "xlm-roberta")
    save_tokenizer("xlm-roberta", tmp_path)
    script = f"import sys; {code.replace('FOLDER', str(tmp_path))}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert not set(unloaded) & set(done.stdout.split())

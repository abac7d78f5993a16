"""OpenVINO scores every family of encoders as torch does."""

import importlib.util
import json

import numpy as np
import pytest

from beamrank.errors import ConfigError, PreflightError
from beamrank.ranking.input_layout import PackedInputs
from contrib.openvino.backend import OpenvinoBackend
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from models.scoring.engine import ScoringEngine
from tests.support.checkpoints import SPECIAL
from tests.support.models.families import CASES, POSITIONS, VOCABULARY, random_model, save_case
from tests.support.models.tables import template
from tests.support.models.tokenizers import save_tokenizer
from tests.support.processes import refused
from tests.support.small_collection import small_cascade

# OpenVINO compiles a model for each length.
_LENGTHS = 5
_COUNT = 4 * _LENGTHS


def _engine(
    folder: str, backend: str, dtype: str = "float32", threads: int = 2, budget: int = 4096
) -> ScoringEngine:
    return ScoringEngine(resolve_checkpoint(folder, "mono"), "cpu", dtype, threads, budget, backend)


def _inputs(folder: str) -> PackedInputs:
    """Random inputs of all lengths up to the model's, several of each."""
    drawn = np.random.default_rng(0)
    template = resolve_checkpoint(folder, "mono").architecture.template(SPECIAL)
    room = POSITIONS - template.special_tokens
    kept = np.stack(
        [np.full(_COUNT, 3), np.repeat(np.linspace(0, room - 3, _LENGTHS).astype(int), 4)], axis=1
    )
    tokens = drawn.integers(10, VOCABULARY, 300).astype(np.uint16)
    return PackedInputs(tokens, drawn.integers(0, 200, kept.shape), kept, template)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_openvino_scores_as_torch(name, tmp_path):
    folder = save_case(tmp_path, name)
    inputs = _inputs(folder)
    found, wanted = (
        _engine(folder, backend).score(inputs).log_odds for backend in ("openvino", "torch")
    )
    assert wanted.std() > 0.1
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert np.diff(wanted[np.argsort(found)]).min() > -2e-4


def _skip_where_refused(dtype):
    """Processors without instructions for bfloat16 compute in float32 alone."""
    try:
        OpenvinoBackend.resolve("cpu", dtype)
    except PreflightError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bert", "bfloat16"),
        pytest.param("modernbert mean", "float32", marks=pytest.mark.slow),
        pytest.param("bert", "float32", marks=pytest.mark.slow),
        pytest.param("modernbert mean", "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_openvino_score_does_not_depend_on_its_neighbours(name, dtype, tmp_path):
    _skip_where_refused(dtype)
    folder = save_case(tmp_path, name)
    inputs = _inputs(folder)
    together = _engine(folder, "openvino", dtype, threads=1).score(inputs)
    assert len(np.unique(together.log_odds)) == _COUNT
    assert together.padded_tokens == int((-(-inputs.lengths // 16) * 16).sum())
    alone = _engine(folder, "openvino", dtype, threads=3, budget=1)
    assert alone.score(inputs).log_odds.tobytes() == together.log_odds.tobytes()
    # The shortest first, in shards of their own: what a model has computed before changes nothing.
    for row in np.argsort(inputs.lengths):
        one = PackedInputs(inputs.tokens, inputs.starts[[row]], inputs.kept[[row]], inputs.template)
        assert alone.score(one).log_odds.tobytes() == together.log_odds[row].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("hidden", "heads", "inner"), [(442, 13, 512), (384, 12, 1536), (1024, 16, 4096)], ids=str
)
def test_openvino_score_does_not_depend_on_the_number_of_inputs(
    hidden, heads, inner, dtype, tmp_path
):
    """So calls need not be filled. It is a property of OpenVINO's kernels, which a new version may
    lose.
    """
    _skip_where_refused(dtype)
    sizes = {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "num_hidden_layers": 2,
    }
    random_model(
        "bert", **sizes, vocab_size=VOCABULARY, max_position_embeddings=128
    ).save_pretrained(tmp_path)
    engine, drawn = _engine(str(tmp_path), "openvino", dtype), np.random.default_rng(0)
    for width in (64, 128):
        kept = np.stack([np.full(33, 3), width - 22 + np.arange(33) % 16], axis=1)
        starts, tokens = (
            drawn.integers(0, 200, kept.shape),
            drawn.integers(10, VOCABULARY, 400).astype(np.uint16),
        )
        together = engine.score(PackedInputs(tokens, starts, kept, template(2))).log_odds
        for some in (slice(0, 1), slice(3, 5), slice(7, 14), slice(11, 28)):
            fewer = engine.score(
                PackedInputs(tokens, starts[some], kept[some], template(2))
            ).log_odds
            assert fewer.tobytes() == together[some].tobytes()


@pytest.mark.slow
def test_openvino_rounds_in_bfloat16_as_much_as_torch(tmp_path):
    _skip_where_refused("bfloat16")
    folder = save_case(tmp_path, "bert")
    inputs = _inputs(folder)
    exact = _engine(folder, "torch").score(inputs).log_odds
    ours, theirs = (
        np.abs(_engine(folder, backend, "bfloat16").score(inputs).log_odds - exact).mean()
        for backend in ("openvino", "torch")
    )
    assert theirs / 2 < ours < 2 * theirs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "float16, .*openvino .*float32 or bfloat16"),
        ({"device": "cuda"}, r"cuda, .*openvino"),
        ({"device": "gpu"}, "auto, cpu, cuda"),
    ],
)
def test_openvino_refuses_other_devices_and_dtypes(options, message):
    with pytest.raises(ConfigError, match=message):
        Reranker("embedded:mono", backend="openvino", **options)


def test_openvino_refuses_a_model_of_transformers(tmp_path):
    save_tokenizer("bert", tmp_path)
    sizes = {
        "hidden_size": 36,
        "num_hidden_layers": 1,
        "num_attention_heads": 3,
        "intermediate_size": 50,
    }
    random_model(
        "albert", **sizes, embedding_size=20, vocab_size=720, max_position_embeddings=64
    ).save_pretrained(tmp_path)
    with pytest.raises(PreflightError, match="openvino"):
        Reranker(str(tmp_path), backend="openvino", max_length=64, max_query_length=32)


@pytest.mark.slow
def test_run_with_openvino_scores_as_with_torch(tmp_path):
    collection = small_cascade(tmp_path)
    torch_run = collection.run(output=tmp_path / "torch")
    run = collection.run("backend=openvino", output=tmp_path / "openvino")
    for stage, column, size in (("mono", "score", 60), ("duo", "scores", 90)):
        found, wanted = (
            np.array([row[column] for row in each.rows(stage)]) for each in (run, torch_run)
        )
        assert found.size == size
        np.testing.assert_allclose(found, wanted, atol=1e-4, equal_nan=True)
    plan = json.loads(next((tmp_path / "openvino").glob("plan-*.json")).read_text())
    assert plan["config"]["backend"] == "openvino"
    assert {path.name for path in (tmp_path / "torch").glob("plan-*")} != {
        path.name for path in (tmp_path / "openvino").glob("plan-*")
    }


def test_command_without_openvino_names_what_to_install(tmp_path, monkeypatch):
    config = small_cascade(tmp_path).path
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "contrib.openvino.backend.find_spec",
        lambda name: None if name == "openvino" else find(name),
    )
    command = ("run", config, "--set", "backend=openvino", "--output", tmp_path / "out")
    assert "pip install '.[openvino]'" in refused(*command, code=3)
    assert list((tmp_path / "out").glob("plan-*")) == []

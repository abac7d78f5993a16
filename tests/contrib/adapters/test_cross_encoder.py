"""The adapter of sentence-transformers: its CrossEncoder's methods, arguments and evaluators."""

import inspect
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sentence_transformers
import torch
from sentence_transformers.cross_encoder.evaluation import (
    CrossEncoderClassificationEvaluator,
    CrossEncoderCorrelationEvaluator,
    CrossEncoderRerankingEvaluator,
)

from beamrank.errors import ConfigError
from contrib.adapters import CrossEncoder
from models.reranker import Reranker
from tests.support.checkpoints import save_tiny

_Theirs = sentence_transformers.CrossEncoder
_QUERIES = ["how do crusts stay crisp", "an oven", "how do crusts stay crisp"]
_TEXTS = ["Open the oven door for the last minutes.", "", "Store bread in paper " * 30]
_PAIRS = list(zip(_QUERIES, _TEXTS, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return save_tiny(tmp_path_factory.mktemp("one logit"), None, num_labels=1)


@pytest.fixture(scope="module")
def ours(folder) -> CrossEncoder:
    return CrossEncoder(folder, dtype="float32")


@pytest.fixture(scope="module")
def theirs(folder) -> _Theirs:
    return _Theirs(folder, activation_fn=torch.nn.Identity())


@pytest.mark.parametrize(
    "options", [{}, {"activation_fn": torch.nn.Sigmoid()}, {"convert_to_tensor": True}], ids=str
)
def test_predict_gives_what_that_of_sentence_transformers_gives(ours, theirs, options):
    found, wanted = (each.predict(_PAIRS, batch_size=2, **options) for each in (ours, theirs))
    assert type(found) is type(wanted)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_predict_prefers_its_own_activation_even_one_without_parts(folder):
    own = torch.nn.Sigmoid()
    models = (
        CrossEncoder(folder, dtype="float32", activation_fn=own),
        _Theirs(folder, activation_fn=own),
    )
    found, wanted = (each.predict(_PAIRS, activation_fn=torch.nn.Sequential()) for each in models)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    "inputs",
    [_PAIRS[0], [*_PAIRS[0]], np.array(_PAIRS[0]), np.array(_PAIRS), [], np.array([], str)],
)
def test_predict_takes_one_pair_or_many_in_any_form(ours, theirs, inputs):
    found, wanted = ours.predict(inputs), theirs.predict(inputs)
    assert np.shape(found) == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_predict_takes_a_frame(ours):
    frame = pd.DataFrame(_PAIRS, columns=["query", "doc"])
    assert ours.predict(frame).tolist() == ours.reranker.score(_PAIRS).tolist()


def test_predict_can_give_a_list_of_tensors(ours):
    found = ours.predict(_PAIRS, convert_to_numpy=False)
    assert [type(each) for each in found] == [torch.Tensor] * 3


def test_rank_gives_what_that_of_sentence_transformers_gives(ours, theirs):
    found, wanted = (
        each.rank(_QUERIES[0], _TEXTS, top_k=2, return_documents=True) for each in (ours, theirs)
    )
    assert [(each["corpus_id"], each["text"]) for each in found] == [
        (each["corpus_id"], each["text"]) for each in wanted
    ]
    assert [each["score"] for each in found] == pytest.approx(
        [each["score"] for each in wanted], abs=1e-5
    )
    assert [each["corpus_id"] for each in ours.rank(_QUERIES[0], _TEXTS[:1] * 3)] == [0, 1, 2]


def test_activation_of_the_constructor_is_that_of_predict_and_rank(ours):
    other = CrossEncoder(ours.reranker, activation_fn=torch.nn.Sigmoid())
    wanted = ours.predict(_PAIRS, activation_fn=torch.nn.Sigmoid())
    assert other.predict(_PAIRS).tolist() == wanted.tolist()
    assert other.rank(*_PAIRS[0][:1], _TEXTS[:1])[0]["score"] == pytest.approx(float(wanted[0]))


def _defaults(function: Any, *without: str) -> dict[str, Any]:
    """The arguments of sentence-transformers that have a default, with it."""
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name: each.default
        for each in parameters
        if each.default is not each.empty and each.name not in without
    }


def test_every_argument_of_sentence_transformers_is_taken_at_its_default(folder, ours):
    defaults = {**_defaults(_Theirs, "model_name_or_path"), "num_labels": 1}
    made = CrossEncoder(folder, dtype="float32", **defaults)
    wanted = ours.predict(_PAIRS).tolist()
    defaults = _defaults(_Theirs.predict)
    assert len(defaults) >= 11
    assert made.predict(_PAIRS, **defaults).tolist() == wanted
    assert made.predict(_PAIRS, *defaults.values()).tolist() == wanted
    ranked = ours.rank(_QUERIES[0], _TEXTS)
    assert made.rank(_QUERIES[0], _TEXTS, **_defaults(_Theirs.rank)) == ranked
    # haystack gives the first, and versions before 5.4 took all of these.
    older: Any = {"convert_to_numpy": True, "convert_to_tensor": True, "apply_softmax": True}
    assert made.rank(_QUERIES[0], _TEXTS, num_workers=0, **older) == ranked


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_labels", 2),
        ("default_prompt_name", "query"),
        ("trust_remote_code", True),
        ("model_kwargs", {"dtype": "float16"}),
        ("keep_in_fp32_modules", ["0.model.classifier"]),
    ],
)
def test_argument_that_means_nothing_is_refused_at_the_start(folder, name, value):
    with pytest.raises(ConfigError, match=rf"CrossEncoder: {name} "):
        CrossEncoder(folder, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", "Query: "),
        ("prompt_name", "query"),
        ("apply_softmax", True),
        ("device", "cuda"),
        ("pool", {"processes": []}),
        ("processing_kwargs", {"text": {"max_length": 8}}),
    ],
)
def test_argument_that_means_nothing_is_refused_by_predict(ours, name, value):
    with pytest.raises(ConfigError, match=rf"CrossEncoder: {name} "):
        ours.predict(_PAIRS, **{name: value})
    with pytest.raises(TypeError, match="theirs"):
        ours.rank(_QUERIES[0], _TEXTS, theirs=1)


def test_duo_is_refused(checkpoints):
    with pytest.raises(ConfigError, match=r"`beamrank\.rerank`"):
        CrossEncoder(Reranker(checkpoints.duo, "duo"))


def test_copy_for_another_process_scores_alike(ours):
    copied = pickle.loads(pickle.dumps(ours))
    assert copied.predict(_PAIRS).tolist() == ours.predict(_PAIRS).tolist()


def test_evaluators_of_sentence_transformers_take_it(ours, theirs):
    docs = [f"{word} {text}" for word in ("oven", "bread", "door") for text in _TEXTS]
    labels = [1, 0, 0, 1, 0, 1, 0, 0, 1]
    pairs = [[query, doc] for query in _QUERIES[:2] for doc in docs]
    samples: list[Any] = [
        {"query": query, "positive": docs[:2], "documents": docs[1:]} for query in _QUERIES[:2]
    ]
    for evaluator in (
        CrossEncoderRerankingEvaluator(samples, name="dev"),
        CrossEncoderClassificationEvaluator(pairs, labels * 2),
        CrossEncoderCorrelationEvaluator(pairs, [float(label) for label in labels * 2]),
    ):
        found, wanted = evaluator(ours), evaluator(theirs)
        assert found == {name: pytest.approx(value, abs=1e-4) for name, value in wanted.items()}
        assert evaluator.primary_metric in found

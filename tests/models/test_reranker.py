"""A reranker scores texts as transformers' own classifier does."""

import copy
import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from transformers import BertTokenizer

from beamrank.demo.collection import demo_questions, stdlib_docs
from beamrank.errors import ConfigError, DataError
from models.checkpoints.sources import locate
from models.reranker import Reranker
from tests.support.checkpoints import MINILM
from tests.support.oracle import Oracle, assert_parity
from tests.support.refusals import refuses

QUERIES = ["how do crusts stay crisp", "an oven", "how do crusts stay crisp"]
TEXTS = ["Open the oven door for the last minutes.", "", "Store bread in paper " * 30]


def _ids(text: str) -> list[int]:
    return BertTokenizer.from_pretrained(MINILM).encode(text, add_special_tokens=False)


def test_reranker_scores_pairs_in_the_order_given(checkpoints):
    found = Reranker(checkpoints.mono, dtype="float32").score(zip(QUERIES, TEXTS, strict=True))
    assert found.dtype == np.float32
    oracle = Oracle(checkpoints.mono)
    wanted = [
        oracle.log_odds(_ids(query), _ids(text)) for query, text in zip(QUERIES, TEXTS, strict=True)
    ]
    assert_parity(found.tolist(), wanted)


def test_reranker_scores_triples_in_the_order_given(checkpoints):
    triples = [
        (QUERIES[0], TEXTS[0], TEXTS[1]),
        (QUERIES[0], TEXTS[1], TEXTS[0]),
        (QUERIES[1], TEXTS[2], TEXTS[0]),
    ]
    found = Reranker(checkpoints.duo, "duo", dtype="float32").score(triples)
    oracle = Oracle(checkpoints.duo)
    assert_parity(found.tolist(), [oracle.log_odds(*map(_ids, triple)) for triple in triples])
    assert found[0] != found[1]


def test_reranker_cuts_texts_by_its_own_limits(checkpoints):
    long = Reranker(
        checkpoints.mono, dtype="float32", truncation="paper", max_query_length=4, max_length=20
    )
    oracle = Oracle(checkpoints.mono)
    wanted = oracle.log_odds(_ids(QUERIES[0])[:2], _ids(TEXTS[2])[:15])
    assert_parity(long.score([(QUERIES[0], TEXTS[2])]).tolist(), [wanted])


def test_reranker_scores_equal_inputs_once(checkpoints):
    reranker = Reranker(checkpoints.mono, dtype="bfloat16")
    pairs = [(query, text) for query in QUERIES for text in TEXTS]
    once = reranker.score(dict.fromkeys(pairs))
    found = reranker.score(pairs)
    assert len(found) == 9
    assert found.tolist() == [once[list(dict.fromkeys(pairs)).index(pair)] for pair in pairs]


@pytest.mark.parametrize("frame", [pa.table, pd.DataFrame, pl.DataFrame])
def test_reranker_scores_the_rows_of_a_frame(checkpoints, frame):
    mono, duo = (
        Reranker(checkpoints.mono, dtype="float32"),
        Reranker(checkpoints.duo, "duo", dtype="float32"),
    )
    pairs: dict[str, list[Any]] = {"doc": TEXTS, "label": [1, 0, 1], "query": QUERIES}
    assert (
        mono.score(frame(pairs)).tolist() == mono.score(zip(QUERIES, TEXTS, strict=True)).tolist()
    )
    triples = {"query": QUERIES, "doc_j": TEXTS[::-1], "doc_i": TEXTS}
    assert (
        duo.score(frame(triples)).tolist()
        == duo.score(zip(QUERIES, TEXTS, TEXTS[::-1], strict=True)).tolist()
    )
    assert mono.score(frame({name: values[:0] for name, values in pairs.items()})).shape == (0,)
    with refuses(DataError, "null", 1) as raised:
        mono.score(frame(pairs | {"doc": [*TEXTS[:1], None, *TEXTS[2:]]}))
    assert "`doc`" in str(raised.value)
    with refuses(DataError, "column-missing") as raised:
        duo.score(frame(pairs))
    assert "doc_i" in str(raised.value)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copied_reranker_scores_as_the_first(checkpoints, copied):
    options: Any = {"truncation": "paper", "max_query_length": 4, "max_length": 20}
    first = Reranker(checkpoints.mono, dtype="float32", threads=1, **options)
    second, pairs = copied(first), list(zip(QUERIES, TEXTS, strict=True))
    assert second is not first
    assert second.score(pairs).tolist() == first.score(pairs).tolist()
    assert (second.kind, second.limits, second.dtype) == ("mono", first.limits, "float32")


def test_reranker_gives_no_scores_for_no_inputs(checkpoints):
    assert Reranker(checkpoints.mono).score([]).shape == (0,)


@pytest.mark.parametrize(
    "wrong", [("only a query",), ("q", "a", "b"), ("q", None), "qt", None, 5, {"q", "t"}]
)
def test_reranker_names_an_input_that_is_not_a_pair(checkpoints, wrong):
    with pytest.raises(DataError, match=r"input 1 .*2 strings"):
        Reranker(checkpoints.mono).score([("q", "t"), wrong])


def test_reranker_refuses_inputs_without_an_order(checkpoints):
    with pytest.raises(ConfigError, match=r"inputs .*set"):
        Reranker(checkpoints.mono).score({("q", "t"), ("q", "u")})


def test_reranker_refuses_a_checkpoint_that_is_not_a_string():
    with pytest.raises(ConfigError, match="checkpoint: "):
        Reranker(None)  # type: ignore[arg-type]


SHA256 = {
    "mono/model.safetensors": "dea67916871baccf1493697f8d6e09e9507a9b93558c99b005f59696c4d05cc7",
    "mono/config.json": "0a5b94cdaa545c1f4506fbf1ac4c905dd2d42fa122e0e2f679f8b2403deee6f2",
    "duo/model.safetensors": "d243316f578217fc290585d964dc6bb0134173c7b6fa67bc9ef7ee9041752bd0",
    "duo/config.json": "ada1151d75e56f5cf90c2049dd2c58584976228fd68a4c7b285fe27b32015d22",
}


@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_embedded_pair_has_the_released_bytes(kind):
    folder = Path(locate(f"embedded:{kind}")[0])
    for name in ("model.safetensors", "config.json"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == SHA256[f"{kind}/{name}"]
    texts = {doc.doc_id: doc.text for doc in stdlib_docs()}
    triples = [
        (question.text, texts[f"{question.answers[0]}:0"], other)
        for question, other in zip(demo_questions(), list(texts.values())[::1000], strict=False)
    ]
    assert len(triples) == 9
    score = Reranker(f"embedded:{kind}", kind, dtype="float32", max_length=96).score
    if kind == "duo":
        margins = score(triples) - score(
            [(query, other, answer) for query, answer, other in triples]
        )
    else:
        margins = score([each[:2] for each in triples]) - score(
            [(query, other) for query, _, other in triples]
        )
    assert int((margins > 0).sum()) >= 8

"""The adapters rank in the real libraries as beamrank does."""

from typing import Any

import mteb
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from mteb.mocks.mock_tasks import MockRerankingTask

from beamrank.errors import DataError
from contrib.adapters.mteb import MtebCrossEncoder
from contrib.adapters.pyterrier import BeamrankReranker
from models.rerank import rerank
from models.reranker import Reranker
from tests.support.checkpoints import Pair, save_pair
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS

_OPTIONS: Any = {"dtype": "float32", "max_length": 64, "max_query_length": 16}


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Pair:
    return save_pair(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module")
def first_stage() -> pd.DataFrame:
    rows = [
        {
            "qid": query_id,
            "query": TOPICS[query_id],
            "docno": doc_id,
            "text": DOCS[doc_id],
            "score": -float(rank),
        }
        for query_id, doc_ids in CANDIDATES.items()
        for rank, doc_id in enumerate(doc_ids)
    ]
    return pt.model.add_ranks(pd.DataFrame(rows).sample(frac=1, random_state=1))


def _run(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    by_query = frame.sort_values("rank").groupby("qid")
    return {
        query_id: dict(zip(some["docno"], some["score"], strict=True))
        for query_id, some in by_query
    }


def test_pyterrier_pipeline_ranks_as_the_cascade(pair, first_stage):
    mono, duo = Reranker(pair.mono, **_OPTIONS), Reranker(pair.duo, "duo", **_OPTIONS)
    given = {
        query_id: {doc_id: -rank for rank, doc_id in enumerate(docs)}
        for query_id, docs in CANDIDATES.items()
    }
    wanted = rerank(TOPICS, given, DOCS, mono=mono, duo=duo, k0=6, k1=3, aggregation="min")
    source = pt.Transformer.from_df(first_stage)
    by_mono = source >> BeamrankReranker(mono, k=6)
    by_duo = by_mono >> BeamrankReranker(pair.duo, "duo", k=3, aggregation="min", **_OPTIONS)
    for pipeline, name in ((by_mono, "mono"), (by_duo, "duo-min")):
        found = pipeline.transform(first_stage[["qid", "query"]].drop_duplicates())
        assert {query_id: list(docs) for query_id, docs in _run(found).items()} == {
            query_id: list(docs) for query_id, docs in wanted[name].items()
        }
        assert found.groupby("qid")["rank"].min().eq(pt.model.FIRST_RANK).all()
    assert _run(BeamrankReranker(mono, k=6).transform(first_stage)) == wanted["mono"]
    qrels = pd.DataFrame(
        {"qid": list(TOPICS), "docno": [docs[4] for docs in CANDIDATES.values()], "label": 1}
    )
    topics = first_stage[["qid", "query"]].drop_duplicates()
    measures = pt.Experiment(
        [by_mono % 5, by_duo], topics, qrels, ["recip_rank"], names=["mono", "duo"]
    )
    assert measures["recip_rank"].between(0, 1, inclusive="neither").all()


def test_pyterrier_doc_may_have_another_text_for_each_query(pair):
    mono = Reranker(pair.mono, **_OPTIONS)
    rows = pd.DataFrame(
        {"qid": ["1", "2"], "query": "amber", "docno": "d", "passage": ["basil", "cedar grove"]}
    )
    found = BeamrankReranker(mono, text_field="passage").transform(rows)
    np.testing.assert_allclose(
        found["score"], mono.score([("amber", "basil"), ("amber", "cedar grove")])
    )
    assert found["rank"].tolist() == [0, 0]


def test_pyterrier_rows_of_one_qid_with_different_queries_are_refused(pair, first_stage):
    """Each would be scored with the query of the last."""
    transformer = BeamrankReranker(pair.mono, **_OPTIONS)
    changed = first_stage.reset_index(drop=True)
    changed.loc[1, "query"] = "a reformulation"
    with pytest.raises(DataError, match=rf"'{changed['qid'][1]}'"):
        transformer.transform(changed)


def test_pyterrier_transformer_refuses_frames_without_texts(pair, first_stage):
    transformer = BeamrankReranker(pair.mono, **_OPTIONS)
    assert transformer.transform(first_stage.iloc[:0]).columns.tolist() == [*first_stage.columns]
    with pytest.raises(pt.validate.InputValidationError, match="text"):
        transformer.transform(first_stage.drop(columns="text"))
    with pytest.raises(DataError, match=r"string .*float"):
        transformer.transform(first_stage.assign(text=1.5))


def test_mteb_evaluates_a_cross_encoder(pair, tmp_path):
    model = MtebCrossEncoder(pair.mono, device="cpu", **_OPTIONS)
    assert isinstance(model, mteb.models.CrossEncoderProtocol)
    found = mteb.evaluate(model, MockRerankingTask(), cache=None, show_progress_bar=False)
    assert found.model_name == "beamrank/mono"
    assert 0 < found[0].get_score() <= 1
    batches = (
        [{"text": ["amber", "basil"]}, {"text": ["cedar"]}],
        [{"text": ["delta"]}, {"text": ["ember", "fjord"]}],
    )
    wanted = Reranker(pair.mono, **_OPTIONS).score(
        [("amber", "delta"), ("basil", "ember"), ("cedar", "fjord")]
    )
    assert model.predict(*batches).tolist() == wanted.tolist()
    other = MtebCrossEncoder(Reranker(pair.mono, **{**_OPTIONS, "max_length": 32}))
    assert other.mteb_model_meta.name == model.mteb_model_meta.name
    assert other.mteb_model_meta.revision != model.mteb_model_meta.revision

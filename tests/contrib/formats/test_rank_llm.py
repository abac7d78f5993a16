"""rank_llm's JSON of retrieved results, as topics, corpus and candidates."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import BeamrankError, PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.corpora import bad_rows, corpus_of, docs_of, read_batches, read_docs
from tests.support.given_runs import read_given
from tests.support.refusals import refuses

REQUESTS = [
    {
        "query": {"text": "how long is life cycle of flea", "qid": "264014"},
        "candidates": [
            {"docid": "4834547", "score": 14.97, "doc": {"contents": "The life cycle of a flea"}},
            {"docid": "6641238", "score": 15.09, "doc": {"title": "Fleas", "segment": "weeks"}},
        ],
    },
    {
        "query": {"text": "bm25", "qid": 7},
        "candidates": [
            {"docid": "6641238", "score": 2, "doc": "text"},
            {"docid": 9, "score": 1, "doc": {"text": ""}},
        ],
    },
]


def _write(path, requests, lines=False):
    content = "\n".join(map(json.dumps, requests)) if lines else json.dumps(requests, indent=1)
    path.write_text(content)
    return str(path)


@pytest.mark.parametrize("lines", [False, True])
def test_rank_llm_is_topics_corpus_and_candidates(tmp_path, lines):
    url = _write(tmp_path / "retrieve_results.json", REQUESTS, lines)
    for name in ("rank_llm", "auto"):
        topics = list(read_topics(TopicsConfig(path=url, format=name)))
        assert topics == [("264014", "how long is life cycle of flea"), ("7", "bm25")]
        batches = read_batches(corpus_of(url, name))
        assert docs_of(batches) == [
            ("4834547", "The life cycle of a flea"),
            ("6641238", "Fleas weeks"),
            ("6641238", "text"),
            ("9", ""),
        ]
        assert [query_id for batch in batches for query_id in batch.query_ids] == ["264014"] * 2 + [
            "7"
        ] * 2
    run = read_given(url)
    assert run.order == {"264014": ["6641238", "4834547"], "7": ["6641238", "9"]}
    assert run.scores["7"] == [2, 1]


def test_rank_llm_has_fields_in_a_template(tmp_path):
    url = _write(tmp_path / "r.json", REQUESTS[:1])
    doc: Any = list(REQUESTS[0]["candidates"])[1]
    corpus = CorpusConfig(
        path=_write(tmp_path / "one.json", [{**REQUESTS[0], "candidates": [doc]}]),
        format="rank_llm",
    )
    corpus = corpus.model_copy(update={"template": "{segment} / {title}"})
    assert docs_of(read_batches(corpus)) == [("6641238", "weeks / Fleas")]
    (bad,) = bad_rows(corpus.model_copy(update={"path": url}))
    assert "has no field `segment`" in bad.reason


def _hits(qid="264014", **named):
    hits = [
        {
            "content": "Title: Fleas Content: weeks",
            "qid": qid,
            "docid": 6641238,
            "rank": 1,
            "score": 15.09,
            **named,
        },
        {
            "content": "The life cycle of a flea",
            "qid": qid,
            "docid": "4834547",
            "rank": 2,
            "score": 14.97,
            **named,
        },
    ]
    return {"query": "how long is life cycle of flea", "hits": hits}


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("query", ["bm25", {"text": "bm25", "qid": 7}, {"text": "bm25"}])
def test_rank_llm_hits_are_topics_corpus_and_candidates(tmp_path, lines, query):
    url = _write(tmp_path / "retrieve_results.json", [_hits(), {**_hits(7), "query": query}], lines)
    for name in ("rank_llm", "auto"):
        topics = list(read_topics(TopicsConfig(path=url, format=name)))
        assert topics == [("264014", "how long is life cycle of flea"), ("7", "bm25")]
        batches = read_batches(corpus_of(url, name))
        texts = [
            ("6641238", "Title: Fleas Content: weeks"),
            ("4834547", "The life cycle of a flea"),
        ]
        assert docs_of(batches) == texts * 2
        assert [query_id for batch in batches for query_id in batch.query_ids] == ["264014"] * 2 + [
            "7"
        ] * 2
    run = read_given(url)
    assert run.order == {"264014": ["6641238", "4834547"], "7": ["6641238", "4834547"]}
    assert run.scores["7"] == pytest.approx([15.09, 14.97])


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"query": "x", "hits": []}, r'"x" .*`qid`'),
        ({"query": "x", "hits": [{"qid": 1, "docid": 2}, {"qid": 2, "docid": 2}]}, "1, 2"),
        ({"query": {"qid": 3, "text": "x"}, "hits": [{"qid": 1, "docid": 2}]}, "1, 3"),
        ({"query": 3, "hits": [{"qid": 1, "docid": 2}]}, "rank_llm"),
    ],
)
def test_rank_llm_hits_without_one_query_are_refused(tmp_path, request_, reason):
    url = _write(tmp_path / "r.json", [request_])
    with pytest.raises(PreflightError, match=reason):
        read_topics(TopicsConfig(path=url, format="rank_llm"))


def test_rank_llm_without_scores_keeps_the_order_of_the_file(tmp_path):
    docs = [{"docid": doc_id, "doc": {"text": "x"}} for doc_id in ("c", "a", "b")]
    url = _write(tmp_path / "r.json", [{"query": {"qid": "q", "text": "t"}, "candidates": docs}])
    assert read_given(url, "doc_id").order == {"q": ["c", "a", "b"]}


def test_rank_llm_reads_named_fields_of_docs(tmp_path):
    url = _write(tmp_path / "r.json", REQUESTS[:1])
    corpus = corpus_of(url, "rank_llm", ("title", "segment"))
    assert docs_of(read_batches(corpus)) == [("6641238", "Fleas weeks")]
    assert [row.reason for row in bad_rows(corpus)] == [
        "the row has no field `title`; it has: contents"
    ]


def test_rank_llm_counts_candidates_that_cannot_be_used(tmp_path):
    bad = [
        ({"score": 1, "doc": {"text": "x"}}, "is a candidate without `docid`"),
        ({"docid": "a", "score": 1}, "is a candidate without `doc`, its text"),
        ({"docid": "a", "doc": {"url": "x"}}, "has no field `text`; it has: url"),
        ({"docid": "a", "doc": {"text": None}}, "has no `text`"),
        ({"docid": None, "doc": "x"}, "has no `docid`"),
        ("a", "is a candidate without `docid`"),
    ]
    requests = [
        {**REQUESTS[1], "candidates": [*REQUESTS[1]["candidates"], *[row for row, _ in bad]]}
    ]
    url = _write(tmp_path / "r.json", requests)
    (batch,) = read_batches(corpus_of(url, "rank_llm"))
    assert batch.query_ids == ["7", "7"]
    rows = bad_rows(corpus_of(url, "rank_llm"))
    assert [row.place for row in rows] == [f"{url} at candidate {i}" for i in range(3, 9)]
    for row, (_, reason) in zip(rows, bad, strict=True):
        assert reason in row.reason
    given = read_given(url)
    assert (given.order, given.rejects.count) == ({"7": ["6641238", "9"]}, len(bad))


@pytest.mark.parametrize(
    ("content", "kind", "place"),
    [
        ('[{"query": {"qid": "1"', "not-json", 1),
        ('[{"query": {"qid": "1", "text": "x"}, "docs": []}]', "not-rank-llm", 1),
        ('[{"query": {"qid": true, "text": "x"}, "candidates": []}]', "not-rank-llm", 1),
        ('{"query": {"qid": "1", "text": "x"}, "candidates": []}\n{"query"', "not-json", 2),
        ("[]", "no-rows", None),
        ('[{"query": {"qid": "a b", "text": "x"}, "candidates": []}]', "id-white-space", 1),
        ('[{"query": {"qid": "1", "text": " "}, "candidates": []}]', "topic-empty", 1),
        (json.dumps([REQUESTS[0], REQUESTS[0]]), "query-twice", 2),
    ],
)
def test_rank_llm_topics_that_cannot_be_read_are_refused(tmp_path, content, kind, place):
    (tmp_path / "r.json").write_text(content)
    with refuses(PreflightError, kind, place):
        read_topics(TopicsConfig(path=str(tmp_path / "r.json"), format="rank_llm"))


def _candidates(folder, *candidates):
    request = {"query": {"qid": "1", "text": "x"}, "candidates": candidates}
    return _write(folder / "r.json", [request])


def test_rank_llm_candidate_that_is_there_twice_is_refused(tmp_path):
    url = _candidates(tmp_path, *[{"docid": "a", "doc": "x"}] * 2)
    with pytest.raises(PreflightError, match=r"candidate 2: .*'1' .*'a' .*candidate 1"):
        read_given(url)


@pytest.mark.parametrize("score", ["high", 1e99, None])
def test_rank_llm_candidate_whose_score_is_no_number_cannot_be_used(tmp_path, score):
    docs = [{"docid": "a", "doc": "x", "score": 1}, {"docid": "b", "doc": "x", "score": score}]
    given = read_given(_candidates(tmp_path, *docs))
    assert given.order == {"1": ["a"]}
    (bad,) = given.rejects.examples
    assert "at candidate 2: the row has " in bad
    assert "score" in bad


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, len(json.dumps(REQUESTS)) - 1))
def test_truncated_rank_llm_file_is_an_error(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "r.json"
    path.write_text(json.dumps(REQUESTS)[:cut])
    with pytest.raises(BeamrankError):
        read_docs(path, "rank_llm")


def test_rank_llm_corpus_that_is_truncated_names_the_file(tmp_path):
    url = _write(tmp_path / "r.json", REQUESTS)
    (unit,) = list_units(corpus_of(url, "rank_llm"))
    (tmp_path / "r.json").write_text(json.dumps(REQUESTS)[:-9])
    with refuses(PreflightError, "not-json", 1):
        list(read_unit(unit))

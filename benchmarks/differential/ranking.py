"""The arithmetic of rankings and of model inputs, against loops over one number or one token at a
time.
"""

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import BertProcessing

from beamrank.commit import schemas
from beamrank.ranking.aggregation import METHODS, aggregate, simulate_sample
from beamrank.ranking.combine import Combine, Normalization
from beamrank.ranking.input_layout import (
    InputLimits,
    InputTemplate,
    PackedInputs,
    cut_docs,
    kept_lengths,
    lay_out,
)
from beamrank.ranking.rankings import Ranking, pool_segments, rank_docs, rank_pairs

_CLS, _SEP = 101, 102
_BERT = {
    count: InputTemplate((_CLS,), ((_SEP,),) * count, tuple(range(count)), 0) for count in (2, 3)
}
Tokens = list[int]


def check(seed: int, folder: Path) -> int:  # noqa: ARG001
    """One draw of everything."""
    random = np.random.default_rng(seed)
    return sum(subject(random) for subject in (_rankings, _inputs, _templates))


def aggregate_by_hand(z: Sequence[Sequence[float]], method: str) -> list[float]:
    """Equations 3 to 7: one candidate after the other, over the pairs that were scored."""
    scores = []
    for i in range(len(z)):
        others = [j for j in range(len(z)) if j != i and not math.isnan(z[i][j])]
        if method in ("min", "max"):
            scores.append({"min": min, "max": max}[method](z[i][j] for j in others))
        else:
            scores.append(sum(_TERMS[method](z[i][j], z[j][i]) for j in others))
    return scores


def _p(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def _log_p(z: float) -> float:
    return -math.log1p(math.exp(-z)) if z >= 0 else z - math.log1p(math.exp(z))


# From z_ij and z_ji; 1 - p is that of -z.
_TERMS: dict[str, Callable[[float, float], float]] = {
    "sum": lambda z, _: _p(z),
    "binary": lambda z, _: float(_p(z) > 0.5),
    "sample": lambda z, _: _p(z),
    "sym_sum": lambda z, back: _p(z) + _p(-back),
    "log_sum": lambda z, _: _log_p(z),
    "sym_log_sum": lambda z, back: _log_p(z) + _log_p(-back),
}


def _rankings(random: np.random.Generator) -> int:
    """Segments are pooled, docs ranked one by one, also by combined scores, then in pairs; the
    corpus lacks some, and scores tie.
    """
    count = int(random.integers(1, 30))
    docs = [f"d{doc}" for doc in random.permutation(count)]
    most, k, scored = random.integers(1, count + 1, 3).tolist()
    before = Ranking(tuple(docs), np.arange(count, 0, -1.0), scored)
    asked = docs[: min(most, scored)]
    segments = {
        doc: np.round(random.normal(size=random.integers(1, 4)) * 3, 1).astype("f4").tolist()
        for doc in asked
        if random.random() < 0.9
    }
    rows = [
        ("q", doc, at, docs.index(doc) + 1, x)
        for doc, scores in segments.items()
        for at, x in enumerate(scores)
    ]
    part = _table(schemas.MONO, [rows[place] for place in random.permutation(len(rows))])
    pooling: Any = str(random.choice(list(_POOL)))
    pooled = {doc: float(np.float32(_POOL[pooling](scores))) for doc, scores in segments.items()}
    table = pool_segments(part, pooling)
    columns = (table[name].to_pylist() for name in ("doc_id", "score"))
    assert dict(zip(*columns, strict=True)) == pooled
    mono = rank_docs({"q": before}, part, most, pooling, k)["q"]
    lost = set(asked) - pooled.keys()
    _same_ranking(mono, docs[:k], pooled, before, lost)
    scored = [doc for doc in docs[:k] if doc in pooled]
    combine = Combine(float(random.random()), random.choice(get_args(Normalization)))
    mixed = rank_docs({"q": before}, part, most, pooling, k, combine)["q"]
    found = dict([*mixed][: mixed.scored])
    wanted = _combined(
        [pooled[doc] for doc in scored], [dict(before)[doc] for doc in scored], combine
    )
    assert np.allclose([found[doc] for doc in scored], wanted, rtol=1e-12, atol=1e-12), combine
    _same_ranking(mixed, docs[:k], found, before, lost)

    compared = list(mono.doc_ids[: random.integers(1, max(mono.scored, 1) + 1)])
    size, method = len(compared), str(random.choice(list(METHODS)))
    z = np.round(random.normal(size=(size, size)) * random.choice([1, 4, 40]), 1)
    z = z.astype(np.float32)
    if method == "sample":
        opponents, seed = random.integers(1, max(size, 1) + 1), random.integers(9)
        z = simulate_sample(z, "q", compared, int(opponents), int(seed))
    if mono.doc_ids:
        pairs = _table(schemas.DUO, [("q", compared, z.ravel().tolist())])
        duo = rank_pairs({"q": mono}, pairs, size, method)["q"]
        by_hand = aggregate_by_hand(z.tolist(), method) if size > 1 else [0.0]
        exact = aggregate(z, method).tolist()
        assert np.allclose(exact, by_hand, rtol=1e-12, atol=1e-12), method
        _same_ranking(duo, compared, dict(zip(compared, exact, strict=True)), mono)
    return len(rows) + len(docs) + int(z.size)


_POOL: dict[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "first": lambda scores: scores[0],
    "mean": lambda scores: sum(scores) / len(scores),
}


def _combined(own: Sequence[float], before: Sequence[float], combine: Combine) -> list[float]:
    normalized = []
    for scores in map(np.array, (own, before)):
        values = scores
        if combine.normalize != "none" and len({*scores.tolist()}) == 1:
            values = np.zeros(len(scores))
        elif combine.normalize == "minmax" and len(scores):
            values = (scores - scores.min()) / (scores.max() - scores.min())
        elif combine.normalize == "zscore" and len(scores):
            values = (scores - scores.mean()) / scores.std()
        normalized.append(values.tolist())
    weight = combine.weight
    return [weight * mine + (1 - weight) * theirs for mine, theirs in zip(*normalized, strict=True)]


def _table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _same_ranking(
    ranking: Ranking,
    ranked: Sequence[str],
    scores: Mapping[str, float],
    before: Ranking,
    lost: Collection[str] = (),
) -> None:
    """Ranked docs with scores, best first, ties in their order; then the others but those that are
    lost, in the order and with the spacing that they had, from 1 below the head.
    """
    earlier = dict(before)
    head = sorted((doc for doc in ranked if doc in scores), key=lambda doc: -scores[doc])
    tail = [doc for doc in before.doc_ids if doc not in head and doc not in lost]
    assert list(ranking.doc_ids) == [*head, *tail]
    assert ranking.scored == len(head)
    shift = scores[head[-1]] - 1 - earlier[tail[0]] if head and tail else 0.0
    wanted = [*(scores[doc] for doc in head), *(earlier[doc] + shift for doc in tail)]
    assert np.allclose(ranking.scores, wanted, rtol=1e-12, atol=1e-9)


def _texts(random: np.random.Generator, count: int, longest: int) -> list[Tokens]:
    return [
        random.integers(200, 30_000, random.integers(0, longest)).tolist() for _ in range(count)
    ]


def _inputs(random: np.random.Generator) -> int:
    """How BERT's texts are cut: `original` as the code of 2019 does, `hf` as `tokenizers`, `paper`
    as the papers say.
    """
    rule: Any = str(random.choice(list(_BY_HAND)))
    segments = 2 if rule == "hf" else int(random.integers(2, 4))
    longest_query = int(random.integers(5, 64))
    limits = InputLimits(rule, longest_query, longest_query + int(random.integers(20, 448)))
    rows = [_texts(random, segments, limits.max_length + 20) for _ in range(6)]
    lengths = np.array([list(map(len, texts)) for texts in rows])
    kept = np.stack(kept_lengths(_BERT[segments], limits, list(lengths.T)), axis=1)
    assert kept.dtype == np.int64
    wanted = [_BY_HAND[rule](texts, limits) for texts in rows]
    cut = [_cut(texts, lengths) for texts, lengths in zip(rows, kept, strict=True)]
    assert [_token_by_token(texts, _BERT[segments])[0] for texts in cut] == wanted, limits
    return sum(map(len, wanted))


def _cut(texts: Sequence[Tokens], lengths: Sequence[int]) -> list[Tokens]:
    return [text[:length] for text, length in zip(texts, lengths, strict=True)]


def convert_to_bert_input(tokens: Tokens, max_seq_length: int, add_cls: bool) -> Tokens:
    """The function of dl4marco-bert; it leaves room for [CLS] whether it adds it or not."""
    cut = tokens[: max_seq_length - 2] if len(tokens) > max_seq_length - 2 else tokens
    return [*([_CLS] if add_cls else []), *cut, _SEP]


def _of_2019(texts: Sequence[Tokens], limits: InputLimits) -> Tokens:
    query = convert_to_bert_input(texts[0], limits.max_query_length, True)
    room = (limits.max_length - len(query)) // (len(texts) - 1)
    return query + [
        token for text in texts[1:] for token in convert_to_bert_input(text, room, False)
    ]


def _of_paper(texts: Sequence[Tokens], limits: InputLimits) -> Tokens:
    ids = [_CLS, *texts[0][: limits.max_query_length - 2], _SEP]
    if len(texts) == 2:
        return [*ids, *texts[1][: limits.max_length - len(ids) - 1], _SEP]
    room = (limits.max_length - limits.max_query_length - 2) // 2
    return [*ids, *texts[1][:room], _SEP, *texts[2][:room], _SEP]


@cache
def _longest_first() -> Tokenizer:
    tokenizer = Tokenizer(
        WordLevel({str(number): number for number in range(30_000)}, unk_token="0")
    )
    tokenizer.post_processor = BertProcessing(("102", _SEP), ("101", _CLS))
    return tokenizer


def _of_tokenizers(texts: Sequence[Tokens], limits: InputLimits) -> Tokens:
    _longest_first().enable_truncation(limits.max_length, strategy="longest_first")
    query, doc = ([str(token) for token in text] for text in texts)
    ids: Tokens = _longest_first().encode(query, doc, is_pretokenized=True).ids
    return ids


_BY_HAND: dict[str, Callable[[Sequence[Tokens], InputLimits], Tokens]] = {
    "original": _of_2019,
    "paper": _of_paper,
    "hf": _of_tokenizers,
}


def _templates(random: np.random.Generator) -> int:
    """Any start, ends and leads, and docs in parts: ids, token types and padding token by token."""
    segments = int(random.integers(2, 4))
    start, *ends = (
        tuple(random.integers(100, 200, random.integers(1, 4)).tolist())
        for _ in range(segments + 1)
    )
    leads = [int(random.integers(0, len(end) + 1)) for end in ends[:-1]]
    template = InputTemplate(
        start,
        tuple(ends),
        tuple(range(segments)),
        7,
        tuple(leads) if random.random() < 0.5 else (),
        int(random.integers(1, 4)),
    )
    texts = _texts(random, 5, 30)
    rows = random.integers(0, len(texts), (4, segments))
    kept = np.array([[random.integers(0, len(texts[place]) + 1) for place in row] for row in rows])
    starts = np.cumsum([0, *map(len, texts)])
    tokens = np.array([*itertools.chain(*texts), 0], np.uint16)
    inputs = cut_docs(PackedInputs(tokens, starts[rows], kept, template))
    width = int(inputs.lengths.max()) + int(random.integers(0, 5))
    wanted = []
    for row, lengths in zip(rows.tolist(), kept.tolist(), strict=True):
        *others, doc = _cut([texts[place] for place in row], lengths)
        borders = [len(doc) * at // template.doc_parts for at in range(template.doc_parts + 1)]
        for begin, end in itertools.pairwise(borders):
            ids, types = _token_by_token([*others, doc[begin:end]], template)
            wanted.append((ids + [7] * (width - len(ids)), types, len(ids)))
    batch = lay_out(inputs, np.arange(len(inputs)), width)
    arrays = batch.token_ids, batch.token_types, batch.lengths
    laid_out = [
        (row.tolist(), kinds[:length].tolist(), int(length))
        for row, kinds, length in zip(*arrays, strict=True)
    ]
    assert laid_out == wanted, template
    assert [array.dtype for array in arrays] == [np.int32, np.int32, np.int64]
    return sum(length for *_, length in wanted)


def _token_by_token(texts: Sequence[Tokens], template: InputTemplate) -> tuple[Tokens, Tokens]:
    ids, types = list(template.start), [template.token_types[0]] * len(template.start)
    for place, (text, end) in enumerate(zip(texts, template.ends, strict=True)):
        lead = template.leads[place] if place < len(template.leads) else 0
        ids += [*text, *end]
        types += [template.token_types[place]] * (len(text) + len(end) - lead)
        types += [template.token_types[min(place + 1, len(texts) - 1)]] * lead
    return ids, types

"""The arithmetic of rankings and of model inputs, against loops over one number or one token at a
time.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import BertProcessing

from beamrank.formats.run_writer import strictly_decreasing
from beamrank.join import schemas
from beamrank.ranking.aggregation import METHODS, aggregate, simulate_sample
from beamrank.ranking.input_layout import (
    InputLimits,
    InputTemplate,
    PackedInputs,
    SegmentRule,
    cut_docs,
    cut_segments,
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
    return sum(each(random) for each in (_rankings, _run_scores, _segments, _inputs, _templates))


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
    """Segments are pooled, docs ranked one by one, then in pairs; the corpus lacks some, and scores
    tie.
    """
    count = int(random.integers(1, 30))
    docs = [f"d{each}" for each in random.permutation(count)]
    before = {
        "q": Ranking(tuple(docs), np.arange(count, 0, -1.0), int(random.integers(1, count + 1)))
    }
    most, k = int(random.integers(1, count + 1)), int(random.integers(1, count + 1))
    asked = docs[: min(most, before["q"].scored)]
    kept = [doc_id for doc_id in asked if random.random() < 0.9]
    segments = {
        doc: np.round(random.normal(size=random.integers(1, 4)) * 3, 1).astype("f4").tolist()
        for doc in kept
    }
    rows = [
        ("q", doc, at, docs.index(doc) + 1, x)
        for doc, scores in segments.items()
        for at, x in enumerate(scores)
    ]
    part = _table(schemas.MONO, [rows[place] for place in random.permutation(len(rows))])
    pooling = str(random.choice(["max", "first", "mean"]))
    pooled = {doc: float(np.float32(_POOL[pooling](scores))) for doc, scores in segments.items()}
    found_scores = pool_segments(part, pooling)  # type: ignore[arg-type]
    assert (
        dict(
            zip(found_scores["doc_id"].to_pylist(), found_scores["score"].to_pylist(), strict=True)
        )
        == pooled
    )
    mono = rank_docs(before, part, most, pooling, k)["q"]  # type: ignore[arg-type]
    tail = [
        doc
        for doc in docs
        if not (doc in pooled and doc in docs[:k]) and (doc not in asked or doc in pooled)
    ]
    _same_ranking(mono, _best(docs[:k], pooled), pooled, dict(before["q"]), tail)

    method = str(random.choice(list(METHODS)))
    compared = list(mono.doc_ids[: random.integers(1, max(mono.scored, 1) + 1)])
    z = np.round(
        random.normal(size=(len(compared), len(compared))) * random.choice([1, 4, 40]), 1
    ).astype(np.float32)
    if method == "sample":
        z = simulate_sample(
            z,
            "q",
            compared,
            int(random.integers(1, max(len(compared), 1) + 1)),
            int(random.integers(9)),
        )
    if mono.doc_ids:
        duo = rank_pairs(
            {"q": mono},
            _table(schemas.DUO, [("q", compared, z.ravel().tolist())]),
            len(compared),
            method,
        )
        by_hand = aggregate_by_hand(z.tolist(), method) if len(compared) > 1 else [0.0]
        exact = aggregate(z, method).tolist()
        assert np.allclose(exact, by_hand, rtol=1e-12, atol=1e-12), method
        aggregated = dict(zip(compared, exact, strict=True))
        tail = [doc for doc in mono.doc_ids if doc not in aggregated]
        _same_ranking(duo["q"], _best(compared, aggregated), aggregated, dict(mono), tail)
    return len(rows) + len(docs) + int(z.size)


_POOL: dict[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "first": lambda scores: scores[0],
    "mean": lambda scores: sum(scores) / len(scores),
}


def _table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _best(docs: Sequence[str], scores: Mapping[str, float]) -> list[str]:
    """Best first; ties keep their order."""
    return sorted((doc for doc in docs if doc in scores), key=lambda doc: -scores[doc])


def _same_ranking(
    found: Ranking,
    head: list[str],
    scores: Mapping[str, float],
    before: Mapping[str, float],
    tail: list[str],
) -> None:
    """The head by its scores; the tail in its order and with its spacing, from 1 below the head."""
    assert list(found.doc_ids) == [*head, *tail]
    assert found.scored == len(head)
    shift = scores[head[-1]] - 1 - before[tail[0]] if head and tail else 0.0
    wanted = [*(scores[doc] for doc in head), *(before[doc] + shift for doc in tail)]
    assert np.allclose(found.scores, wanted, rtol=1e-12, atol=1e-9)


def _run_scores(random: np.random.Generator) -> int:
    """s_r = min(float32(x_r), s_(r-1) - max(1e-5, 4 ulp)), one after the other; as text they
    decrease too.
    """
    scale = 10 ** random.uniform(-8, 30)
    scores = np.sort(
        np.round(random.normal(size=random.integers(1, 60)), int(random.integers(0, 9))) * scale
    )[::-1]
    wanted: list[np.float32] = []
    for x in scores.astype(np.float32):
        step = (
            max(np.float32(1e-5), np.float32(4) * np.spacing(abs(wanted[-1])))
            if wanted
            else np.float32(0)
        )
        wanted.append(min(x, wanted[-1] - step) if wanted else x)
    found = strictly_decreasing(scores.tolist())
    assert found.tolist() == [float(each) for each in wanted]
    written = [f"{each:.9g}" for each in found.tolist()]
    for kind in (np.float64, np.float32):
        read = np.array(written).astype(kind).tolist()
        assert all(first > second for first, second in itertools.pairwise(read))
    return len(scores)


def _segments(random: np.random.Generator) -> int:
    lengths = random.integers(0, 80, random.integers(1, 9))
    size = int(random.integers(1, 20))
    rule = SegmentRule(size, int(random.integers(1, size + 1)), int(random.integers(1, 9)))
    wanted = []
    for doc, tokens in enumerate(lengths.tolist()):
        for number in range(rule.limit):
            start = number * rule.stride_tokens
            wanted.append((doc, number, start, min(tokens - start, size)))
            if start + size >= tokens:
                break
    found = cut_segments(lengths, rule)
    assert list(zip(*(each.tolist() for each in found), strict=True)) == wanted
    return len(wanted)


def _texts(random: np.random.Generator, count: int, longest: int) -> list[Tokens]:
    return [
        random.integers(200, 30_000, random.integers(0, longest)).tolist() for _ in range(count)
    ]


def _packed(texts: Sequence[Tokens], rows: Any, kept: Any, template: InputTemplate) -> PackedInputs:
    starts, tokens = (
        np.cumsum([0, *map(len, texts)]),
        np.array([*itertools.chain(*texts), 0], np.uint16),
    )
    return PackedInputs(tokens, starts[rows], kept, template)


def _written(inputs: PackedInputs, random: np.random.Generator) -> list[Tokens]:
    """The token ids of a batch of random width without its padding; token types are those of the
    segments.
    """
    width = int(inputs.lengths.max()) + int(random.integers(0, 5))
    ids, _, lengths = lay_out(inputs, np.arange(len(inputs)), width)
    for row, length in zip(ids, lengths.tolist(), strict=True):
        assert (row[length:] == inputs.template.pad_id).all()
    return [row[:length].tolist() for row, length in zip(ids, lengths.tolist(), strict=True)]


def _inputs(random: np.random.Generator) -> int:
    """BERT's inputs: `original` as the code of 2019 writes them, `hf` as `tokenizers`, `paper`
    token by token.
    """
    rule = str(random.choice(["original", "paper", "hf"]))
    segments = 2 if rule == "hf" else int(random.integers(2, 4))
    longest_query = int(random.integers(5, 64))
    limits = InputLimits(rule, longest_query, longest_query + int(random.integers(20, 448)))  # type: ignore[arg-type]
    texts = _texts(random, 12, limits.max_length + 20)
    rows = random.integers(0, len(texts), (6, segments))
    lengths = [np.array([len(texts[place]) for place in column]) for column in rows.T]
    kept = np.stack(kept_lengths(_BERT[segments], limits, lengths), axis=1)
    assert kept.dtype == np.int64
    found = _written(_packed(texts, rows, kept, _BERT[segments]), random)
    by_hand = {"original": _of_2019, "paper": _of_paper, "hf": _of_tokenizers}[rule]
    assert found == [by_hand([texts[place] for place in row], limits) for row in rows.tolist()], (
        limits
    )
    return sum(map(len, found))


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


def _templates(random: np.random.Generator) -> int:
    """Any start, ends and leads, and docs in parts: ids and token types token by token."""
    segments = int(random.integers(2, 4))
    ends = tuple(
        tuple(random.integers(100, 200, random.integers(1, 4)).tolist()) for _ in range(segments)
    )
    leads = (
        tuple(int(random.integers(0, len(end) + 1)) for end in ends[:-1])
        if random.random() < 0.5
        else ()
    )
    start = tuple(random.integers(100, 200, random.integers(1, 4)).tolist())
    template = InputTemplate(
        start, ends, tuple(range(segments)), 7, leads, int(random.integers(1, 4))
    )
    texts = _texts(random, 5, 30)
    rows = random.integers(0, len(texts), (4, segments))
    kept = np.array([[random.integers(0, len(texts[place]) + 1) for place in row] for row in rows])
    inputs = cut_docs(_packed(texts, rows, kept, template))
    batch = lay_out(inputs, np.arange(len(inputs)), int(inputs.lengths.max()))
    wanted = []
    for row, lengths in zip(rows.tolist(), kept.tolist(), strict=True):
        cut = [texts[place][:length] for place, length in zip(row, lengths, strict=True)]
        borders = [
            len(cut[-1]) * part // template.doc_parts for part in range(template.doc_parts + 1)
        ]
        for begin, end in itertools.pairwise(borders):
            wanted.append(_token_by_token([*cut[:-1], cut[-1][begin:end]], template))
    found = [
        (ids[:length].tolist(), types[:length].tolist())
        for ids, types, length in zip(*batch, strict=True)
    ]
    assert found == wanted, template
    assert [each.dtype for each in batch] == [np.int32, np.int32, np.int64]
    return sum(len(ids) for ids, _ in wanted)


def _token_by_token(texts: Sequence[Tokens], template: InputTemplate) -> tuple[Tokens, Tokens]:
    ids, types = list(template.start), [template.token_types[0]] * len(template.start)
    for place, (text, end) in enumerate(zip(texts, template.ends, strict=True)):
        lead = template.leads[place] if place < len(template.leads) else 0
        ids += [*text, *end]
        types += [template.token_types[place]] * (len(text) + len(end) - lead)
        types += [template.token_types[min(place + 1, len(texts) - 1)]] * lead
    return ids, types

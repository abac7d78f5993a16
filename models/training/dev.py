"""The dev run: candidates that a model in training re-ranks, with the code that scores in a run;
and cross-validation.

In cross-validation each fold's topics are ranked by a model that did not see them, and all of them
are measured.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import torch

from beamrank.commit.schemas import candidates_table
from beamrank.config.cascade import parse_stage
from beamrank.errors import PreflightError
from beamrank.evaluation.evaluate import Evaluation, evaluate
from beamrank.evaluation.tables import COUNT, MEAN, Cell, Column, Table
from beamrank.formats.files import shown_paths
from beamrank.formats.qrels import Judgments, Qrels, read_qrels
from beamrank.formats.run_writer import write_run
from beamrank.formats.runs import read_run
from beamrank.formats.topics import read_topics
from beamrank.ranking.input_layout import InputLimits, max_doc_tokens
from beamrank.ranking.rankings import Rankings, doc_orders, rank_candidates
from beamrank.storage import files as storage
from models.rerank import Cascade, tokens_name
from models.reranker import Reranker, tokenize_shard
from models.stages.base import FIRST
from models.tokenizers.bert import BertTokenizer
from models.training.config import DevConfig, Kind, TrainConfig
from models.training.data.texts import normal_text, read_texts

HELD_OUT, POOLED, POOLED_GIVEN = "held-out.trec", "pooled.trec", "given.trec"
_DEPTHS = {"mono": 100, "duo": 10}
_FOLD_MEASURES = ("P@1", "AP", "RR")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class DevSet:
    """A dev run, tokenized: the first `k` candidates of a topic are re-ranked; `lines` report about
    it.
    """

    kind: Kind
    k: int
    measure: str
    candidates: pa.Table
    tokens: pa.Table
    qrels: Qrels
    queries: Mapping[str, str]
    limits: InputLimits
    lines: tuple[str, ...]

    def first_stage(self) -> float:
        """The measure of the given run."""
        return self._value(doc_orders(rank_candidates(self.candidates)))

    def sees_order(self) -> bool:
        """Whether two orders of the first candidates can differ in the measure."""
        best, worst = [], []
        for query_id, doc_ids in doc_orders(rank_candidates(self.candidates)):
            levels, tail = self.qrels.relevance[query_id], doc_ids[self.k :]
            head = sorted(doc_ids[: self.k], key=Counter(levels).__getitem__)
            worst.append((query_id, [*head, *tail]))
            best.append((query_id, [*reversed(head), *tail]))
        return self._value(best) != self._value(worst)

    def measured(self, folder: str, device: str, threads: int) -> float:
        """The measure of the run, re-ranked by the checkpoint in a folder."""
        return self._value(doc_orders(self.reranked(folder, device, threads)))

    def reranked(self, folder: str, device: str, threads: int) -> Rankings:
        """The run, re-ranked by the checkpoint in a folder; DataError if a score is not finite."""
        assert self.kind != "tcp"
        reranker = Reranker(
            folder, self.kind, device=device, threads=threads, **self.limits._asdict()
        )
        stage = parse_stage({self.kind: {"checkpoint": folder, "k": self.k}})
        tables = {FIRST: self.candidates, tokens_name(reranker): self.tokens}
        (rankings,) = Cascade.of([stage], {stage.name: reranker}).rankings(tables)
        return rankings

    def evaluate(self, rankings: Rankings, measures: Sequence[str]) -> Evaluation:
        """Measures rankings of its topics."""
        return evaluate(doc_orders(rankings), self.qrels, measures)

    def _value(self, orders: Iterable[tuple[str, Sequence[str]]]) -> float:
        (value,) = evaluate(orders, self.qrels, [self.measure]).means.values()
        return value


def read_dev(config: TrainConfig, dev: DevConfig, tokenizer: BertTokenizer, kind: Kind) -> DevSet:
    """Reads and tokenizes a dev run.

    The measure is over its judged topics, also without candidates; with `max_topics`, over the
    first topics that have candidates.
    """
    corpus = dev.corpus or config.data.corpus
    assert corpus is not None
    judged = read_qrels(dev.qrels)
    topics = list(read_topics(dev.topics).of_queries(judged.relevance))
    if config.folds is not None:
        topics = [topic for topic in topics if config.folds.holds_out(topic.query_id)]
    run = read_run(dev.run, ties="rank")
    order = run.order
    if dev.max_topics is not None:
        topics = [topic for topic in topics if topic.query_id in order][: dev.max_topics]
    ranked = {topic.query_id: order[topic.query_id] for topic in topics if topic.query_id in order}
    if not ranked:
        raise PreflightError(
            f"no topic of {shown_paths(dev.topics.path)} is both judged in "
            f"{shown_paths(dev.qrels)} and in the run {dev.run}: there is nothing to measure. "
            "Give files of the same topics"
        )
    depth = dev.k or _DEPTHS[kind]
    shown = {query_id: doc_ids[:depth] for query_id, doc_ids in ranked.items()}
    texts, lines = read_texts(
        corpus, {one for doc_ids in shown.values() for one in doc_ids}, config.data.max_bad_rows
    )
    queries = {topic.query_id: topic.text for topic in topics}
    counts = {
        "judged topics that the run does not have, which count as 0": (
            len(queries) - len(ranked),
            len(queries),
        ),
        "topics without a text": (_empty(queries.values()), len(queries)),
        "candidates without a text": (_empty(texts.values()), len(texts)),
    }
    lines += [
        f"dev run, {what}: {count:,} of {total:,}"
        for what, (count, total) in counts.items()
        if count
    ]
    limits = config.input.limits
    return DevSet(
        kind=kind,
        k=depth,
        measure=dev.measure,
        candidates=candidates_table(list(ranked), list(ranked.values())),
        tokens=tokenize_shard(
            tokenizer,
            {query_id: queries[query_id] for query_id in shown},
            candidates_table(list(shown), list(shown.values())),
            texts,
            max_doc_tokens(limits.max_length * config.inputs_per_passage),
        ),
        qrels=Qrels(
            Judgments.of({query_id: judged.relevance[query_id] for query_id in queries}),
            judged.notes,
        ),
        queries=queries,
        limits=limits,
        # Ties are by rank here.
        lines=(*lines, *(f"dev.run: {line}" for line in replace(run.notes, tied_scores=0).lines())),
    )


def _empty(texts: Iterable[str]) -> int:
    return sum(not normal_text(text) for text in texts)


def rank_held_out(dev: DevSet, output: str, device: str) -> Rankings:
    """Ranks the held-out topics by the model in the output of a finished training, and writes their
    run beside it.
    """
    reranked = dev.reranked(output, device, torch.get_num_threads())
    write_run(storage.join(output, HELD_OUT), reranked, "held-out")
    return reranked


def _merged(mappings: Sequence[Mapping[str, _Value]]) -> dict[str, _Value]:
    merged = {query_id: value for mapping in mappings for query_id, value in mapping.items()}
    return dict(sorted(merged.items(), key=lambda item: item[0]))


def write_pooled(folds: Sequence[tuple[DevSet, Rankings]], output: str) -> Table:
    """Writes the runs of all folds together, reranked and as given; measures each fold and all
    topics together.
    """
    parts = [(dev.qrels, reranked, rank_candidates(dev.candidates)) for dev, reranked in folds]
    pooled = (
        _merged([reranked for _, reranked, _ in parts]),
        _merged([given for *_, given in parts]),
    )
    write_run(storage.join(output, POOLED), pooled[0], "pooled")
    write_run(storage.join(output, POOLED_GIVEN), pooled[1], "given")
    judged = Judgments.of(_merged([qrels.relevance for qrels, *_ in parts]))
    parts.append((Qrels(judged, parts[0][0].notes), *pooled))
    names = [*(f"fold {number}" for number in range(len(folds))), "all"]
    measures = list(dict.fromkeys([folds[0][0].measure, *_FOLD_MEASURES]))
    rows: list[list[Cell]] = []
    for name, (qrels, *both) in zip(names, parts, strict=True):
        for kind, rankings in zip(("reranked", "given"), both, strict=True):
            evaluation = evaluate(doc_orders(rankings), qrels, measures)
            rows.append([f"{name}, {kind}", len(evaluation.per_query), *evaluation.means.values()])
    return Table(
        [Column("topics"), Column("count", COUNT), *(Column(name, MEAN) for name in measures)], rows
    )

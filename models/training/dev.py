"""The dev run: candidates that a model in training re-ranks, with the code that scores in a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from beamrank.config.stages import DuoConfig, MonoConfig
from beamrank.errors import PreflightError
from beamrank.evaluation.evaluate import Evaluation, evaluate
from beamrank.formats.files import shown_paths
from beamrank.formats.qrels import Judgments, Qrels, read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import read_topics
from beamrank.join.schemas import candidates_table
from beamrank.ranking.input_layout import InputLimits, max_doc_tokens
from beamrank.ranking.rankings import Rankings, doc_orders, rank_candidates
from models.rerank import rerank_shard
from models.reranker import Reranker, tokenize_shard
from models.tokenizers.bert import BertTokenizer
from models.training.config import DevConfig, Kind, TrainConfig
from models.training.data.texts import normal_text, read_texts

_DEPTHS = {"mono": 100, "duo": 10}


@dataclass(frozen=True)
class DevSet:
    """A dev run, tokenized: the first `k` candidates of a topic are re-ranked; `lines` report about it."""

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
        return self._value(rank_candidates(self.candidates))

    def sees_order(self) -> bool:
        """Whether the measure of some order of the first candidates differs from that of another."""

        def extreme(sign: int) -> float:
            orders = []
            for query_id, doc_ids in doc_orders(rank_candidates(self.candidates)):
                levels = self.qrels.relevance[query_id]
                head = sorted(doc_ids[: self.k], key=lambda doc_id: sign * levels.get(doc_id, 0))
                orders.append((query_id, [*head, *doc_ids[self.k :]]))
            (value,) = evaluate(orders, self.qrels, [self.measure]).means.values()
            return value

        return extreme(1) != extreme(-1)

    def measured(self, folder: str, device: str, threads: int) -> float:
        """The measure of the run, re-ranked by the checkpoint in a folder."""
        return self._value(self.reranked(folder, device, threads))

    def reranked(self, folder: str, device: str, threads: int) -> Rankings:
        """The run, re-ranked by the checkpoint in a folder.

        Raises:
            DataError: a score is not finite.
        """
        assert self.kind != "tcp"
        reranker = Reranker(folder, self.kind, device=device, threads=threads, **self.limits._asdict())
        section = (MonoConfig if self.kind == "mono" else DuoConfig)(checkpoint=folder, k=self.k)
        return rerank_shard(reranker, section, rank_candidates(self.candidates), self.tokens)

    def evaluate(self, rankings: Rankings, measures: Sequence[str]) -> Evaluation:
        """Measures rankings of its topics."""
        return evaluate(doc_orders(rankings), self.qrels, measures)

    def _value(self, rankings: Rankings) -> float:
        (value,) = self.evaluate(rankings, [self.measure]).means.values()
        return value


def read_dev(config: TrainConfig, dev: DevConfig, tokenizer: BertTokenizer, kind: Kind) -> DevSet:
    """Reads and tokenizes a dev run.

    The measure is over its judged topics, those without candidates included; with `max_topics`, over the first of those
    that have candidates.

    Raises:
        PreflightError: a file is missing or invalid, or no judged topic is in the run.
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
            f"no topic of {shown_paths(dev.topics.path)} is both judged in {shown_paths(dev.qrels)} and in the run "
            f"{dev.run}: there is nothing to measure. Give files of the same topics"
        )
    depth = dev.k or _DEPTHS[kind]
    shown = {query_id: doc_ids[:depth] for query_id, doc_ids in ranked.items()}
    texts, lines = read_texts(corpus, {one for doc_ids in shown.values() for one in doc_ids}, config.data.max_bad_rows)
    queries = {topic.query_id: topic.text for topic in topics}
    relevance = Judgments.of({query_id: judged.relevance[query_id] for query_id in queries})
    counts = {
        "judged topics that the run does not have, which count as 0": (len(queries) - len(ranked), len(queries)),
        "topics without a text": (_empty(queries.values()), len(queries)),
        "candidates without a text": (_empty(texts.values()), len(texts)),
    }
    lines += [f"dev run, {what}: {count:,} of {total:,}" for what, (count, total) in counts.items() if count]
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
            max_doc_tokens(config.input.max_length * config.inputs_per_passage),
        ),
        qrels=Qrels(relevance, judged.notes),
        queries=queries,
        limits=InputLimits(**config.input.model_dump()),
        # Ties are by rank here.
        lines=(*lines, *(f"dev.run: {line}" for line in replace(run.notes, tied_scores=0).lines())),
    )


def _empty(texts: Iterable[str]) -> int:
    return sum(not normal_text(text) for text in texts)

"""An output with made-up scores of all stages, without models: what reports and curves are made
from.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from beamrank.commit import schemas
from beamrank.commit.plan import Plan
from beamrank.commit.shards import cut_shards
from beamrank.config.load import stored_config
from beamrank.records import Topic
from beamrank.report.runs import PlanRuns
from models.stages.base import Stage
from models.stages.core import open_stages
from models.stages.given_run import GivenRun
from tests.support.models.stages import a_stage


class ScoredOutput:
    """Topics of random candidates and scores with ties; `depths` are bm25.k, mono.k and duo.k.

    `spread` 0 makes all scores of a stage the same.
    """

    def __init__(
        self,
        folder: Path,
        topics: int = 7,
        depths: tuple[int, int, int] = (12, 8, 5),
        prefix: str = "",
        spread: float = 1.0,
        seed: int = 5,
        **keys: Any,
    ) -> None:
        self.spread = spread
        self.random = np.random.default_rng(seed)
        self.folder, self.depths = folder, depths
        self.query_ids = [f"{prefix}q{number}" for number in range(topics)]
        self.docs = [f"{prefix}d{number}" for number in range(4 * depths[0])]
        self.texts = {doc_id: f"the text of {doc_id} {prefix}" for doc_id in self.docs}
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "run_tag": "made",
            "corpus": {"path": str(folder / "corpus.jsonl"), "format": "jsonl"},
            "topics": {"path": str(folder / "topics.tsv"), "format": "tsv"},
            "qrels": str(folder / "qrels.txt"),
            "candidates": {"run": str(folder / "given.trec"), "k": depths[0]},
            "mono": {"checkpoint": "embedded:mono", "k": depths[1]},
            "duo": {"checkpoint": "embedded:duo", "k": depths[2]},
            "measures": [
                "RR@10",
                "nDCG@10",
                "AP",
                "R@5",
                "P@3",
                "Success@2",
                "Judged@10",
                "nDCG",
                "RR(rel=2)@5",
            ],
            "output": str(folder / "out"),
            **keys,
        }
        self.shards = cut_shards(
            [Topic(query_id, f"text of {query_id} {prefix}") for query_id in self.query_ids], 3
        )
        self.stages: list[Stage] = [
            GivenRun(run_digest="0" * 64, k=depths[0], url=str(folder / "given.trec")),
            a_stage("mono", k=depths[1], tokens=""),
            a_stage("duo", k=depths[2], tokens=""),
        ]
        self.records = tuple(stage.record() for stage in self.stages)
        self.plan = Plan("made", str(folder / "out"), self.shards, self.records, config)
        self.write_qrels()

    def runs(self, **changed: Any) -> PlanRuns:
        """What is stored, with other settings of the configuration."""
        config = stored_config(self.plan.config, "here").model_copy(update=changed)
        return PlanRuns(self.plan, config, open_stages(self.plan.stages))

    def write_corpus(self) -> None:
        lines = [
            json.dumps({"id": doc_id, "contents": text}) for doc_id, text in self.texts.items()
        ]
        (self.folder / "corpus.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def write_qrels(self, judged: Mapping[str, Sequence[str]] | None = None) -> None:
        """Levels from -1 to 3 of a third of the docs; one topic has no judgments, and one judged
        topic was not run.
        """
        lines = []
        for query_id in [*self.query_ids[1:], "stranger"]:
            docs = self.random.choice(self.docs, len(self.docs) // 3, replace=False)
            lines += [f"{query_id} 0 {doc_id} {self.random.integers(-1, 4)}\n" for doc_id in docs]
        (self.folder / "qrels.txt").write_text("".join(lines))

    def _counts(self, query: int) -> tuple[int, int, int]:
        """One topic has no candidates, one has one, one has fewer than duo compares."""
        count = {2: 0, 3: 1, 4: self.depths[2] - 1}.get(query, self.depths[0])
        return count, min(count, self.depths[1]), min(count, self.depths[2])

    def run(self, stages: int = 3, last_shards: int | None = None) -> "ScoredOutput":
        """Commits the parts of the first stages; of the last of these, those of some shards
        only.
        """
        self.plan.publish()
        parts: list[list[pa.Table]] = [[], [], []]
        for shard in self.shards:
            for number, table in enumerate(
                self._tables([topic.query_id for topic in shard.topics])
            ):
                parts[number].append(table)
        for record, tables in list(zip(self.records, parts, strict=True))[:stages]:
            inputs = [
                manifest for manifest in map(self.plan.seal, record.inputs) if manifest is not None
            ]
            digests = self.plan.shard_digests(record, inputs)
            counts = {
                "inferences": 10,
                "tokens": 90,
                "padded_tokens": 100,
                "queries": 2,
                "halvings": 0,
            }
            done = tables if record.name != self.records[stages - 1].name else tables[:last_shards]
            for number, table in enumerate(done):
                self.plan.folder(record.name).commit(
                    number, digests[number], table, seconds=1.5, counts=counts
                )
        return self

    def stored(self, stage: str) -> pa.Table:
        """All rows of a finished stage."""
        manifest = self.plan.seal(stage)
        assert manifest is not None
        return pa.concat_tables(
            [self.plan.folder(stage).read_part(receipt) for receipt in manifest.receipts]
        )

    def _tables(self, query_ids: Sequence[str]) -> list[pa.Table]:
        candidates, mono, duo = [], [], []
        for query_id in query_ids:
            count, scored, compared = self._counts(self.query_ids.index(query_id))
            docs = [str(each) for each in self.random.choice(self.docs, count, replace=False)]
            scores = np.round(self.random.normal(size=scored) * self.spread, 1).astype(np.float32)
            candidates += [
                {
                    "query_id": query_id,
                    "doc_id": doc_id,
                    "rank": rank,
                    "score": 100.0 - rank * self.spread,
                }
                for rank, doc_id in enumerate(docs, 1)
            ]
            mono += [
                {
                    "query_id": query_id,
                    "doc_id": doc_id,
                    "segment": 0,
                    "rank": rank,
                    "score": float(score),
                }
                for rank, (doc_id, score) in enumerate(zip(docs[:scored], scores, strict=True), 1)
            ]
            order = np.argsort(-scores, kind="stable")[:compared]
            z = np.round(self.random.normal(size=(compared, compared)) * self.spread, 1).astype(
                np.float32
            )
            np.fill_diagonal(z, np.nan)
            duo.append(
                {
                    "query_id": query_id,
                    "doc_ids": [docs[each] for each in order],
                    "scores": z.ravel().tolist(),
                }
            )
        tables = zip(
            (candidates, mono, duo), (schemas.CANDIDATES, schemas.MONO, schemas.DUO), strict=True
        )
        return [pa.Table.from_pylist(rows, schema=schema) for rows, schema in tables]

"""Any pairs or triples of texts, without topics and without a ranking."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
import pyarrow as pa

from beamrank.commit.check import Verification
from beamrank.commit.plan import Plan
from beamrank.commit.stage import StageRecord, described
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.stages import StageConfig
from beamrank.errors import ConfigError
from beamrank.formats.rejects import Rejects
from beamrank.records import BadRow
from beamrank.storage.digested import RowRange
from contrib.pairs.config import ScoreConfig
from contrib.pairs.tables import PairKind, PairsFile, read_pairs
from models.checkpoints.checkpoint import Checkpoint, tokenizer_of
from models.reranker import score_texts
from models.scoring.backends.registry import Device
from models.scoring.engine import StageCounts
from models.stages.base import Key, Stage
from models.stages.compute import Computed, ShardInputs
from models.stages.planning import Planning
from models.stages.scoring import ModelStage


@dataclass(frozen=True, kw_only=True)
class ScorePairs(ModelStage):
    """Scores rows of files. The worker that scores a text also tokenizes it, as no other shard
    needs its tokens.
    """

    type_name = "pairs"
    section = StageConfig
    name = "scores"
    ranks = False
    needs = None
    input_docs = 0
    reads_input = True

    checkpoint_digest: Annotated[str, Key("checkpoint")]
    columns: Annotated[PairKind, Key("columns of texts")]
    id_type: Annotated[str, Key("type of the ids")]
    renamed: Annotated[dict[str, str], Key("columns")]
    # The other columns, each with its type, which the scores have too.
    passed: Annotated[tuple[tuple[str, str], ...], Key("other columns")]
    tokenizer_digest: Annotated[str, Key("checkpoint")]

    @classmethod
    def of_files(
        cls, config: ScoreConfig, file: PairsFile, checkpoint: Checkpoint, device: Device
    ) -> Self:
        """The stage for files like `file`.

        Raises:
            ConfigError: the limits of inputs do not fit the columns.
            PreflightError: the checkpoint's tokenizer cannot be used.
        """
        tokenizer = tokenizer_of(checkpoint)
        checkpoint.check_limits(tokenizer, config.input.limits)
        return cls(
            columns=file.kind,
            id_type=str(file.id_type),
            renamed=dict(config.columns),
            passed=described(file.passed),
            tokenizer_digest=tokenizer.digest,
            instruction=config.instruction,
            options=config.options,
            **cls.model_settings(config, checkpoint, device),
        )

    @classmethod
    def planned(cls, own: ConfiguredStage, planning: Planning) -> Sequence[Stage]:  # noqa: ARG003
        """Refused: it is no stage of a cascade."""
        raise ConfigError(f"{own.kind} is the stage of `beamrank score`: leave it out of `cascade`")

    def verify(self, plan: Plan, found: Verification) -> None:
        # It takes a second to import, and workers do without.
        from contrib.pairs.scores_table import verify_scores

        verify_scores(plan, found)

    @property
    def schema(self) -> pa.Schema:
        """A row for each pair or triple, in their order; its score is null where it has none."""
        id_type = pa.type_for_alias(self.id_type)
        return pa.schema([pa.field("id", id_type), pa.field("score", pa.float32())])

    @property
    def kind(self) -> str:
        return self.columns

    def record(self) -> StageRecord:
        stored = super().record()
        return replace(stored, schema=(*stored.schema, *self.passed))

    def compute(self, inputs: ShardInputs) -> Computed:
        """Scores rows; rows that cannot be scored are counted and written to `rejects/`, and have
        no score.

        Raises:
            DataError: the checkpoint's files or the file with the rows changed, so that nothing is
                committed.
        """
        assert inputs.rows is not None
        inputs.opened(self.open)
        table, counts, bad = self.score(inputs.rows)
        rejects = Rejects("pairs")
        rejects.add(inputs.rows.file.url, bad)
        part = table.replace_schema_metadata(self._metadata() | {"beamrank.schema": "scores/1"})
        return Computed(part, asdict(counts), rejects=rejects)

    def score(self, rows: RowRange) -> tuple[pa.Table, StageCounts, list[BadRow]]:
        """The scores of some rows, with the other columns; bad rows have none."""
        id_type = pa.type_for_alias(self.id_type)
        pairs = read_pairs(rows, self.columns, id_type, self.renamed, self.passed)
        with self.resolved().unchanged():
            engine = self.open()
            tokenizer = tokenizer_of(self.resolved())
            log_odds, counts = score_texts(engine, tokenizer, self.limits, pairs.texts)
        scores = np.zeros(len(pairs.ids), np.float32)
        scores[pairs.usable] = log_odds
        columns: list[Any] = [
            pairs.ids,
            pa.array(scores, mask=~pairs.usable),
            *pairs.passed.columns,
        ]
        return (
            pa.table(columns, schema=pa.schema([*self.schema, *pairs.passed.schema])),
            counts,
            pairs.bad,
        )

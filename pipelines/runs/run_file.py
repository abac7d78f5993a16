"""One run to write: its name, and its rows from the parts of a shard."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from beamrank.commit.listing import RUNS
from beamrank.commit.part_folder import PartFolder
from beamrank.commit.parts import ShardParts
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import part_bytes
from beamrank.commit.stage import Stage
from beamrank.config.run import RunConfig
from beamrank.formats.run_writer import FORMATS, run_lines
from beamrank.ranking.rankings import Rankings, rows_by_query
from beamrank.ranking.run_table import run_table
from beamrank.storage import files as storage
from models.stages.base import RANKED_BY
from pipelines.runs.run_metadata import Component


@dataclass(frozen=True)
class RunFile:
    """One run to write.

    Attributes:
        name: the run's: the file's, without its ending.
        stage: the stage that ranks.
        run_format: of the file.
        k: how many docs count as received by the stage; None for all that it received.
        variant: settings of the stage that its parts can be ranked with, in place of its own, such as an aggregation.
        in_parts: whether it is a folder with a part for each shard, and not one file.
    """

    name: str
    stage: str
    run_format: str = "trec"
    k: int | None = None
    variant: tuple[tuple[str, Any], ...] = ()
    in_parts: bool = False

    @property
    def base(self) -> str:
        """The name of the file, or of the folder."""
        return f"{self.name}.{FORMATS[self.run_format].ending}"

    def rankings(self, parts: ShardParts) -> Rankings:
        """Each query's ranking, from the parts of a shard."""
        if self.k is None and not self.variant:
            return parts.rankings(self.stage)
        stage: Any = next(each for each in parts.stages if each.name == self.stage)
        return parts.rank(replace(stage, **dict(self.variant)), self.k)

    def by_query(self, parts: ShardParts, run_tag: str) -> Iterator[tuple[str, bytes]]:
        """The rows of each query of a shard: lines, or a serialized batch of a table."""
        if self.is_table:
            table = self._table(parts)
            for query_id, rows in rows_by_query(table).items():
                (batch,) = table.slice(rows.start, rows.stop - rows.start).to_batches()
                yield query_id, batch.serialize().to_pybytes()
            return
        for query_id, ranking in self.rankings(parts).items():
            lines = run_lines(query_id, ranking, run_tag, self.run_format)
            yield query_id, "".join(f"{line}\n" for line in lines).encode()

    def part(self, parts: ShardParts, run_tag: str) -> bytes:
        """The part of a shard: the same bytes wherever it is made."""
        if self.is_table:
            return part_bytes(self._table(parts))
        return b"".join(lines for _, lines in self.by_query(parts, run_tag))

    @property
    def is_table(self) -> bool:
        """Whether it is Parquet."""
        return FORMATS[self.run_format].is_table

    def _table(self, parts: ShardParts) -> Any:
        rankings = self.rankings(parts)
        return run_table(rankings, parts.ranked_by(self.stage, rankings))

    def folder(self, plan: Plan) -> PartFolder:
        """Where its parts are, if it is in parts."""
        url = storage.join(plan.output, RUNS, self.base)
        return PartFolder(url, FORMATS[self.run_format].ending, len(plan.shards))


def run_files(stages: Sequence[Stage], config: RunConfig) -> list[RunFile]:
    """The runs of a plan, in the order of its stages, each in every format that the configuration asks for."""
    return [
        RunFile(str(stage.run_name), stage.name, run_format, in_parts=config.in_parts(run_format))
        for stage in stages
        if stage.ranks
        for run_format in config.run_formats
    ]


def parse_run_file(stages: Sequence[Stage], base: str) -> RunFile | None:
    """The run of a variant of a stage that has this file name; None if no run has it."""
    name, _, ending = base.partition(".")
    run_format = next((each for each, found in FORMATS.items() if found.ending == ending), None)
    for stage in stages if run_format else ():
        found = stage.parse_run_name(name)
        if found is not None:
            return RunFile(name, stage.name, run_format or "", found[1], found[0])
    return None


def describe_retrieval(stages: Sequence[Any], file: RunFile) -> Iterator[Component]:
    """The stages up to that of a run, with the settings that decide its scores."""
    before: str | None = None
    for stage in stages:
        if not stage.ranks:
            continue
        is_last = stage.name == file.stage
        varied = replace(stage, **dict(file.variant)) if is_last else stage
        # The first stage's folder has a name of ours.
        name = stage.method if before is None or stage.name == stage.type_name else f"{stage.method}:{stage.name}"
        settings = {
            **({} if before is None else {"checkpoint": getattr(stage, "checkpoint", None)}),
            **{key: value for key, value in stage.keys.items() if key != RANKED_BY},
            **varied.described,
            **({"k": file.k} if is_last and file.k is not None else {}),
            "reranks": before,
        }
        yield {"name": name, **{key: value for key, value in settings.items() if value not in (None, {})}}
        if is_last:
            return
        before = name

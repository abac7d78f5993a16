"""`beamrank negatives DIR`: training data for re-rankers, from the rankings and scores that a run
stored.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.parts import ShardParts
from beamrank.commit.receipts import table_chunks
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.corpora import find_taken
from beamrank.formats.qrels import Judgments, read_qrels
from beamrank.notes import Progress, counted
from beamrank.report.runs import PlanRuns
from beamrank.storage import files as storage
from beamrank.storage.documents import digest, hash64, hashes64
from contrib.negatives.choose import GROUPS, Rules, Strategy
from contrib.negatives.table import (
    FORMATS,
    DocTexts,
    TableFolder,
    row_groups,
    table_rows,
    table_schema,
)
from models.training.data.texts import normal_text
from pipelines.commands.arguments import (
    OwnQrels,
    Quiet,
    RunFolder,
    Verbose,
    console_progress,
    one_of,
    open_runs,
    option,
    scored_stage,
)
from pipelines.console.terminal import write_line

HELP_PANEL = "Data and models"

_ENDING = "parquet"


def negatives(
    folder: RunFolder,
    output: Annotated[
        str,
        option(
            "One Parquet file if the name ends in .parquet, else a folder with a part for each "
            "shard."
        ),
    ],
    qrels: OwnQrels = None,
    output_format: Annotated[
        str, one_of("--output-format", FORMATS, "What a row is: as in sentence-transformers.")
    ] = "triplet",
    stage: Annotated[
        str | None,
        option(
            "The stage that ranked; by default the last that scores docs one by one.",
            metavar="NAME",
        ),
    ] = None,
    rel: Annotated[
        int, option("The lowest label of a positive; all other docs can be negatives.", min=1)
    ] = 1,
    range_min: Annotated[
        int, option("Pass over so many first docs that pass the other filters.", min=0)
    ] = 0,
    range_max: Annotated[
        int | None, option("Pass over docs below this rank; positives have none.", min=1)
    ] = None,
    max_score: Annotated[float | None, option("The highest score of a negative.")] = None,
    absolute_margin: Annotated[
        float | None,
        option("A negative's score is at least this much below its positive's.", min=0),
    ] = None,
    relative_margin: Annotated[
        float | None,
        option("It is at least this share of the positive's score below it: 0.05 for 95 %.", min=0),
    ] = None,
    num_negatives: Annotated[int, option("Negatives of a positive.", min=1)] = 3,
    sampling_strategy: Annotated[
        Strategy, option("The first negatives, or some by a hash of the ids.")
    ] = "top",
    seed: Annotated[int, option("Draws others, with --sampling-strategy random.")] = 0,
    output_scores: Annotated[
        bool, option("Whether the column `scores` has the stage's scores, for distillation.")
    ] = True,
    ids: Annotated[
        bool,
        option(
            "Add query_id and doc_ids, which sentence-transformers would read as texts.", "--ids"
        ),
    ] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Write hard negatives of judged topics as training data, from a run's rankings and scores;
    needs no model.

    For `beamrank train` and sentence-transformers. A folder resumes: parts that are there are not
    made again.
    """
    console, runs = console_progress(verbose, quiet), open_runs(folder)
    rules = Rules(
        *(rel, range_min, range_max, max_score, absolute_margin, relative_margin),
        *(num_negatives, sampling_strategy, seed, output_format, output_scores, ids),
    )
    judgments, shards = qrels or runs.config.qrels, len(runs.plan.shards)
    if judgments is None:
        raise ConfigError(f"the run in {folder} has no judgments: give --qrels")
    if (
        find_taken(runs.config.corpus, [output, storage.join(output, f"part.{_ENDING}")])
        is not None
    ):
        raise ConfigError(
            f"--output {output} would be read as a file of the corpus: give a path outside of it"
        )
    mining = Mining(
        runs, scored_stage(runs, stage), rules, read_qrels(judgments).relevance, Counter()
    )
    mining.check_depth()
    storage.check_lasting(output)
    if not output.endswith(f".{_ENDING}"):
        parts = TableFolder(output, _ENDING, shards, mining.decided_by())
        with (
            parts.opened() as missing,
            console.events(),
            console.bar("negatives") as bar,
            mining.tables(missing, bar) as tables,
        ):
            for shard, table in zip(missing, tables, strict=True):
                parts.add(shard, table)
            parts.seal()
        if len(missing) < shards:
            console.note(
                f"{counted(shards - len(missing), 'part was', 'parts were')} there, and not made "
                "again"
            )
    elif storage.is_folder(output):
        raise ConfigError(
            f"--output {output} is a folder, and a name that ends in .{_ENDING} is a file's"
        )
    else:
        with (
            console.events(),
            console.bar("negatives") as bar,
            mining.tables(range(shards), bar) as tables,
        ):
            schema = table_schema(rules)
            storage.replace_stream(output, table_chunks(schema, row_groups(schema, tables)))
    for line in mining.lines():
        console.note(line)
    write_line(output)


@dataclass(frozen=True)
class Mining:
    """Everything that decides the table, and counts over the shards that were made."""

    runs: PlanRuns
    stage: str
    rules: Rules
    judged: Judgments
    counts: Counter[str]

    def check_depth(self) -> None:
        """Raises ConfigError where no topic can have so many negatives."""
        rows = max(receipt.rows for receipt in self.runs.manifests[self.stage].receipts)
        most = min(self.runs.plan.stage(self.stage).keys.get("k", rows), rows) - 1
        if self.rules.num_negatives > most:
            raise ConfigError(
                f"--num-negatives {self.rules.num_negatives:,}: a positive has at most {most:,}, "
                f"the other docs of a topic that {self.stage} scored. Take fewer"
            )

    def decided_by(self) -> dict[str, Any]:
        """The settings that decide each part, as JSON can hold them."""
        source = {
            "version": 3,
            "plan": self.runs.plan.digest,
            "stage": self.stage,
            "manifest": self.runs.manifests[self.stage].digest,
            "judgments": digest(list(self.judged.items())),
        }
        return source | asdict(self.rules)

    @contextmanager
    def tables(self, shards: Sequence[int], progress: Progress) -> Iterator[Iterator[pa.Table]]:
        """The rows of some shards.

        Raises:
            PreflightError: no positive has a negative, or the corpus is not the run's.
        """
        groups, hashes, chosen = dict[int, pa.Table](), [np.empty(0, np.uint64)], frozenset(shards)
        for parts in self.runs.shards() if chosen else ():
            if parts.shard in chosen:
                group = groups[parts.shard] = self._choose(parts)
                named = pa.concat_arrays(
                    [*group["positive"].chunks, *pc.list_flatten(group["doc_ids"]).chunks]
                )
                hashes.append(hashes64(named.to_pylist()))
                progress.update(len(groups), len(shards), "shards")
        wanted = np.unique(np.concatenate(hashes))
        found_any = any(
            pc.sum(pc.list_value_length(table["doc_ids"])).as_py() for table in groups.values()
        )
        if not found_any and len(shards) == len(self.runs.plan.shards):
            raise PreflightError(f"no positive has a negative: {'; '.join(self.lines())}")
        with tempfile.TemporaryFile() as file, self.runs.open_corpus() as corpus:
            texts = DocTexts(file, wanted)
            if len(wanted):
                texts.scan(corpus, progress)
            yield (self._table(shard, groups[shard], texts) for shard in shards)

    def _choose(self, parts: ShardParts) -> pa.Table:
        """The groups of a shard, in an order that does not depend on the shards."""
        rankings, rows = parts.rankings(self.stage), list[dict[str, Any]]()
        query_ids = [topic.query_id for topic in self.runs.plan.shards[parts.shard].topics]
        for query_id in sorted(query_ids, key=lambda query_id: (hash64(query_id), query_id)):
            judged = self.judged.get(query_id, {})
            rows += self.rules.groups(query_id, rankings.get(query_id), judged, self.counts)
        return pa.Table.from_pylist(rows, GROUPS)

    def _table(self, shard: int, groups: pa.Table, texts: DocTexts) -> pa.Table:
        """The rows of a shard; docs without a text, and copies of another or of a positive, are
        passed over.
        """
        queries, relevant = (
            dict(self.runs.plan.shards[shard].topics),
            defaultdict[str, set[str]](set),
        )
        kept = [row for row in groups.to_pylist() if normal_text(texts[row["positive"]])]
        self.counts["too few"] += len(groups) - len(kept)
        for row in kept:
            relevant[row["query_id"]].add(normal_text(texts[row["positive"]]))
        rows: list[dict[str, Any]] = []
        for row in kept:
            query_id, most = row["query_id"], self.rules.num_negatives
            docs, seen = (
                [(row["positive"], texts[row["positive"]], row["score"])],
                {"", *relevant[query_id]},
            )
            for doc_id, score in zip(row["doc_ids"], row["scores"], strict=True):
                text = texts[doc_id]
                if len(docs) <= most and (normal := normal_text(text)) not in seen:
                    docs.append((doc_id, text, score))
                    seen.add(normal)
                elif len(docs) <= most:
                    self.counts["copies"] += 1
            self.counts["too few"] += len(docs) <= most
            rows += table_rows(self.rules, query_id, queries[query_id], docs)
        self.counts["rows"] += len(rows)
        return pa.Table.from_pylist(rows, table_schema(self.rules))

    def lines(self) -> Iterator[str]:
        """What was made now, for the user."""
        counts, most = self.counts, counted(self.rules.num_negatives, "negative")
        if counts["positives"]:
            yield (
                f"{counted(counts['rows'], 'row')} of {counted(counts['positives'], 'positive')}; "
                f"{self.stage} did not score {counts['not scored']:,}, which are left out; "
                f"{counts['too few']:,} have fewer than {most}"
            )
        passed = [
            f"{name} {count:,}" for name, count in counts.items() if name.startswith("--") and count
        ]
        if counts["copies"]:
            passed.append(f"without a text, or copies of another {counts['copies']:,}")
        if passed:
            yield f"docs passed over, for each positive: {', '.join(passed)}"

"""`beamrank card DIR`: README.md of a finished run, with which `hf upload` takes its folder as a
data set.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated

from beamrank.commit.listing import MEASURES, PART, RUNS, VALUES, list_stage
from beamrank.commit.receipts import Manifest
from beamrank.commit.stage import Stage
from beamrank.errors import PreflightError
from beamrank.evaluation.tables import MEAN, Cell, Column, Table, markdown, markdown_text
from beamrank.notes import counted
from beamrank.report.runs import PlanRuns
from beamrank.storage import files as storage
from beamrank.storage.documents import usable
from beamrank.version import __version__
from models.checkpoints.sources import hub_id
from pipelines.commands.arguments import (
    RunFolder,
    open_runs,
    option,
)
from pipelines.console.terminal import write_line

HELP_PANEL = "Data and models"

CARD = "README.md"
_MOST_NAMED = 100


def card(
    folder: RunFolder,
    licence: Annotated[
        str | None,
        option(
            "The licence of the data, in the hub's words: cc-by-4.0.", "--licence", metavar="NAME"
        ),
    ] = None,
    language: Annotated[
        str | None, option("The language of the texts: en, de.", metavar="CODE")
    ] = None,
) -> None:
    """Write DIR/README.md, the card of a data set on Hugging Face: stages, measures, what the files
    hold.

    A card that is there already is not changed. Prints its path.
    """
    from huggingface_hub import DatasetCardData

    runs = open_runs(folder)
    url = storage.join(runs.plan.output, CARD)
    if storage.exists(url):
        raise PreflightError(
            f"{url} exists, and may have your own words: delete it first to have it written again"
        )
    unfinished = [stage.name for stage in runs.plan.stages if stage.name not in runs.manifests]
    if unfinished:
        raise PreflightError(
            f"{', '.join(unfinished)} is not finished in {runs.plan.output}, and a card is of a "
            "whole run: run the same `beamrank run` again, which resumes"
        )
    head = DatasetCardData(
        pretty_name=runs.plan.run_tag,
        license=licence,
        language=language,
        task_categories=["text-ranking"],
        tags=["beamrank", "information-retrieval", "trec-run"],
        configs=[
            {
                "config_name": stage.name,
                "data_files": _parts(runs, stage, runs.manifests[stage.name]),
            }
            for stage in runs.finished
        ],
    )
    blocks = "\n\n".join(_blocks(runs))
    storage.replace(url, f"---\n{head.to_yaml()}\n---\n\n{blocks}\n".encode())
    write_line(url)


def _parts(runs: PlanRuns, stage: Stage, manifest: Manifest) -> str | list[str]:
    """The files of a stage's rows: a pattern, unless parts of other plans lie beside them."""
    parts = [receipt.part for receipt in manifest.receipts]
    present = {
        entry.name
        for entry in list_stage(runs.plan.folder(stage.name).url)
        if entry.is_complete(PART)
    }
    if present == set(parts):
        return f"{stage.name}/part-*.parquet"
    if len(parts) > _MOST_NAMED:
        raise PreflightError(
            f"{stage.name} holds parts of other plans beside its {len(parts):,}, and a card cannot "
            "tell them apart: run the configuration into a new folder with --reuse, which scores "
            "nothing again"
        )
    return [f"{stage.name}/{part}" for part in parts]


def _blocks(runs: PlanRuns) -> Iterator[str]:
    """The paragraphs and tables of a card; no path of this machine is in them."""
    plan, config = runs.plan, runs.config
    yield f"# {markdown_text(plan.run_tag)}"
    yield (
        f"Rankings of {counted(len(plan.topics), 'topic')} over "
        f"{markdown_text(storage.name(config.corpus.path))}, by beamrank {__version__}."
    )
    yield markdown(_stages(runs)).rstrip()
    measures = _measures(plan.output)
    names = list(dict.fromkeys(name for means in measures.values() for name in means))
    if names:
        rows: list[list[Cell]] = [[run, *map(means.get, names)] for run, means in measures.items()]
        yield markdown(
            Table([Column("run"), *(Column(name, MEAN) for name in names)], rows)
        ).rstrip()
    yield (
        f"`{RUNS}/` holds the rankings for trec_eval, each with its settings, versions and "
        "machine (`*.metadata.yaml`, ir_metadata). The folder of a stage holds its candidates "
        "with their scores, log-odds before any activation, in Parquet; `beamrank report` and "
        "`beamrank inspect` read the whole folder."
    )


def _stages(runs: PlanRuns) -> Table:
    statuses = {status.stage: status for status in runs.statuses}
    rows: list[list[Cell]] = []
    for stage in runs.finished:
        reference = getattr(stage, "checkpoint", None)
        # A folder is on this machine only.
        model = None if reference is None else hub_id(reference) or storage.name(reference)
        keys, status = runs.plan.stage(stage.name).keys, statuses[stage.name]
        rows.append([stage.name, model, keys.get("k"), status.inferences + status.reused or None])
    return Table(
        [
            Column("stage"),
            Column("model"),
            Column("docs per topic", ","),
            Column("inferences", ","),
        ],
        rows,
    )


def _measures(output: str) -> Mapping[str, Mapping[str, float | None]]:
    """The means of each run, as they were written; none without judgments."""
    url = storage.join(output, RUNS, MEASURES)
    if not storage.exists(url):
        return {}
    try:
        # The mean of no judged topic is NaN.
        values = json.loads(storage.read_bytes(url), parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise PreflightError(f"{url} cannot be used: {error}") from error
    means = usable(dict[str, dict[str, object]], values, url)
    means.pop(VALUES, None)
    return usable(dict[str, dict[str, float | None]], means, url)

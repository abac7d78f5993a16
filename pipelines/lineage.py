"""OpenLineage events: what a run reads and writes, for the data catalog of whoever schedules it.

They are sent where OpenLineage is configured by its own variables, such as OPENLINEAGE_URL, and the extra `lineage` is
installed. A run never fails because of them.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from beamrank.commit.plan import Plan
from beamrank.config.run import RunConfig
from beamrank.formats.folders import paths_of
from beamrank.version import __version__
from pipelines.console.progress import ConsoleProgress

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset

_PREFIX = "OPENLINEAGE_"
_PRODUCER = f"https://pypi.org/project/beamrank/{__version__}"
_TREC_COLUMNS = {
    "query_id": "string", "Q0": "string", "doc_id": "string", "rank": "int", "score": "float", "run_tag": "string",
}  # fmt: skip


@contextmanager
def lineage(
    plan: Plan, config: RunConfig, stage: str | None, console: ConsoleProgress
) -> Iterator[Callable[[Collection[str]], None]]:
    """Sends an event at the start of a run, or of one stage of it, and one at its end, whatever the end is.

    Yields:
        A function that takes the paths of the run files.
    """
    if not any(name.startswith(_PREFIX) for name in os.environ):
        yield lambda _: None
        return
    try:
        import openlineage.client  # noqa: F401
    except ImportError:
        console.warn("OpenLineage is configured but not installed: pip install 'beamrank[lineage]'. No events are sent")
        yield lambda _: None
        return
    # Its own reports of a server that does not answer are long; ours is a line.
    logging.getLogger("openlineage").setLevel(logging.CRITICAL)
    sender = _Sender(plan, config, stage, console)
    sender.send("START")
    try:
        yield sender.wrote
    except KeyboardInterrupt:
        sender.send("ABORT")
        raise
    except BaseException as error:
        sender.send("FAIL", error)
        raise
    sender.send("COMPLETE")


class _Sender:
    """Sends the events of one run."""

    def __init__(self, plan: Plan, config: RunConfig, stage: str | None, console: ConsoleProgress) -> None:
        from openlineage.client.uuid import generate_new_uuid

        self._run_id = str(generate_new_uuid())
        name = ".".join(filter(None, ("beamrank", plan.run_tag, stage)))
        self._job = os.environ.get("OPENLINEAGE_NAMESPACE", "default"), name
        self._plan, self._config = plan, config
        self._outputs: list[OutputDataset] = []
        self._console = console

    def wrote(self, paths: Collection[str]) -> None:
        """Takes the run files, which the last event names."""
        self._outputs = [_output(path) for path in paths]

    def send(self, state: str, error: BaseException | None = None) -> None:
        """Sends an event; a failure is a warning."""
        from openlineage.client import OpenLineageClient
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

        try:
            event = RunEvent(
                eventType=RunState[state],
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(self._run_id, _run_facets(error)),
                job=Job(*self._job),
                producer=_PRODUCER,
                inputs=list(_inputs(self._plan, self._config)),
                outputs=self._outputs,
            )
            OpenLineageClient().emit(event)
        except Exception as problem:
            self._console.warn(f"no OpenLineage {state} event was sent: {problem}")


def _run_facets(error: BaseException | None) -> dict[str, Any]:
    """The error, and the task of a scheduler that OPENLINEAGE_PARENT_ID names as NAMESPACE/JOB/RUN."""
    from openlineage.client.facet_v2 import error_message_run, parent_run

    facets: dict[str, Any] = {}
    if error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(str(error), "python")
    namespace, _, rest = os.environ.get("OPENLINEAGE_PARENT_ID", "").partition("/")
    job, _, run_id = rest.rpartition("/")
    if namespace and job and run_id:
        facets["parent"] = parent_run.ParentRunFacet(parent_run.Run(run_id), parent_run.Job(namespace, job))
    return facets


def _inputs(plan: Plan, config: RunConfig) -> Iterator["InputDataset"]:
    """The corpus, topics, qrels, given run and checkpoints; with the digests that the plan has of them."""
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset

    digests: dict[str, str] = {}
    for stage in plan.stages:
        if stage.corpus_digest is not None:
            digests[config.corpus.path] = stage.corpus_digest
        if "checkpoint_digest" in stage.keys:
            digests[stage.settings["checkpoint"]] = stage.keys["checkpoint_digest"]
    given = [config.corpus.path, config.topics.path, config.qrels, config.candidates and config.candidates.run]
    paths = [path for each in given if each for path in paths_of(each)]
    for path in dict.fromkeys([*paths, *digests]):
        version = digests.get(path)
        facets: Any = {}
        if version is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(version, producer=_PRODUCER)
        yield InputDataset(*_dataset_name(path), facets=facets)


def _output(path: str) -> "OutputDataset":
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import schema_dataset

    columns = _TREC_COLUMNS if path.endswith(".trec") else {"query_id": "string", "doc_id": "string", "rank": "int"}
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in columns.items()]
    facets: Any = {"schema": schema_dataset.SchemaDatasetFacet(fields, producer=_PRODUCER)}
    return OutputDataset(*_dataset_name(path), facets=facets)


def _dataset_name(path: str) -> tuple[str, str]:
    """The namespace and name of a file or checkpoint, as OpenLineage names datasets."""
    scheme, separator, rest = path.partition("://")
    if separator:
        bucket, _, name = rest.partition("/")
        return f"{scheme}://{bucket}", name
    if path.startswith("/"):
        return "file", path
    return ("beamrank" if path.startswith("embedded:") else "huggingface"), path

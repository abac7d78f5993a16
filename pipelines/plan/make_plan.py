"""From a configuration to a plan: reads and checks every input, so that errors are found before
anything runs.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import pyarrow as pa

from beamrank.commit.listing import RUNS
from beamrank.commit.plan import Plan, Rejected
from beamrank.commit.probe import check_store
from beamrank.commit.shards import cut_shards, first_topics
from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.corpora import digest_corpus, find_taken, list_units
from beamrank.formats.excluded import read_excluded
from beamrank.formats.files import hash_files, input_files, shown_paths
from beamrank.formats.qrels import read_qrels
from beamrank.formats.rejects import Rejects
from beamrank.formats.run_writer import FORMATS
from beamrank.formats.topic_table import TopicTable
from beamrank.formats.topics import read_topics
from beamrank.notes import Note, Progress, Silent
from beamrank.section import SELF
from beamrank.storage import files as storage
from beamrank.storage.local_files import check_regular, temporary_name
from beamrank.storage.stores import UnreachableError
from models.checkpoints.checkpoint import Checkpoint, input_warnings, tokenizer_of, warnings_of
from models.lucene.index import INFO_NAME
from models.scoring.backends.registry import Device, find_backend
from models.stages.core import plan_stages, read_checkpoints
from models.stages.planning import Planning, PlanningProgress
from pipelines.plan.languages import language_notes


def make_plan(config: RunConfig, console: PlanningProgress, scoring: Device | None = None) -> Plan:
    """Checks all inputs and resolves everything that decides the bytes of parts; builds a missing
    index.

    Args:
        config: the configuration.
        console: where warnings go.
        scoring: where scoring runs, if that is not this machine.

    Raises:
        ConfigError: a measure that does not exist.
        PreflightError: an input is missing or invalid, or the output cannot be written.
    """
    check_apart(config)
    check_writable(config.output)
    return _decide(config, console, scoring)


def planned(config: RunConfig) -> tuple[Plan, list[str]]:
    """Like `make_plan`, but writes nothing, an index neither: without one, the digest of the first
    stage is unknown.

    Returns:
        The plan, and warnings, but not about checkpoints.
    """
    check_apart(config)
    warnings = _Warnings()
    return _decide(config, warnings, None, builds=False), warnings.texts


class _Warnings(Silent):
    """Collects warnings."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        self.texts.append(text)

    def bar(self, _: str, /) -> AbstractContextManager[Progress]:
        """Shows nothing."""
        return nullcontext(self)


def _decide(
    config: RunConfig, console: PlanningProgress, scoring: Device | None, builds: bool = True
) -> Plan:
    if config.measures:
        parse_measures(config.measures)
    topics, left_out, rejects, notes = chosen_topics(config)
    for note in [*notes, *(note for reject in rejects for note in reject.notes())]:
        console.warn(str(note))
    if left_out:
        total = len(topics) + left_out
        console.note(
            f"a trial: the first {len(topics):,} of {total:,} topics are run (topics.limit)"
        )
    for note in _exclusions(config, topics):
        console.note(str(note))
    # Before libraries of models are loaded: millions of topics need the memory.
    shards = cut_shards(topics, config.shards, consume=True)
    pa.default_memory_pool().release_unused()
    checkpoints, limits = read_checkpoints(config), config.input.limits
    instructions = list(dict.fromkeys(shards.topics.instructions))
    models = [model for model in checkpoints.values() if isinstance(model, Checkpoint)]
    for checkpoint in models:
        checkpoint.check_limits(tokenizer_of(checkpoint), limits, instructions)
    for checkpoint in models if builds else ():
        for warning in (
            *warnings_of(checkpoint),
            *input_warnings(checkpoint, limits._asdict()),
        ):
            console.warn(warning)
    units = list_units(config.corpus)
    for line in language_notes(config, units) if builds else ():
        console.note(line)
    corpus = digest_corpus(config.corpus)
    device = scoring or find_backend(config.backend).resolve(config.device, config.dtype)
    if device.warning:
        console.warn(device.warning)
    stages = plan_stages(Planning(config, corpus.digest, checkpoints, device, console, builds))
    values = config.model_dump(mode="json")
    if not left_out:
        values["topics"]["limit"] = None
    records = tuple(stage.record() for stage in stages)
    rejected = {
        reject.kind: Rejected(
            reject.count, reject.publish(config.output) if builds else reject.as_file()[0]
        )
        for reject in rejects
    }
    qrels = {} if config.judgments is None else hash_files(config.judgments)
    plan = Plan(config.run_tag, config.output, shards, records, values, rejected, corpus, qrels)
    return plan.measured_before()


def _exclusions(config: RunConfig, topics: TopicTable) -> list[Note]:
    """Notes for the user about the docs that the first stage leaves out."""
    exclude = config.first_stage.exclude
    if exclude is None:
        return []
    if exclude != SELF:
        # It is read again when candidates are committed.
        check_regular(exclude)
    relevance = (
        {}
        if config.judgments is None
        else read_qrels(config.judgments, rejects=config.max_bad_rows.rejects("qrels")).relevance
    )
    excluded = read_excluded(exclude)
    return excluded.facts(topics.those_of(excluded.pairs or ()), relevance)


class ChosenTopics(NamedTuple):
    """The topics to run, how many others `topics.limit` left out, rows of topics and qrels that
    cannot be used, and what a user should know about all topics.
    """

    kept: TopicTable
    left_out: int
    rejects: tuple[Rejects, ...]
    notes: Sequence[Note]


def chosen_topics(config: RunConfig) -> ChosenTopics:
    """The topics to run. The qrels are read, to find errors in them now."""
    rejects = config.max_bad_rows.rejects("topics"), config.max_bad_rows.rejects("qrels")
    topics, limit = (
        read_topics(config.topics, rejects[0], config.reads_instructions, config.bm25_template),
        config.topics.limit,
    )
    notes = topics.notes
    judged, qrels = None, config.qrels if config.topics.only_judged else config.judgments
    if qrels is not None:
        # They are read again for the measures.
        for file in input_files(qrels, "qrels file"):
            check_regular(file.url)
        judged = read_qrels(qrels, rejects=rejects[1]).relevance
        paths, total = shown_paths(qrels), len(topics)
        if config.measures and not judged.has_relevant:
            raise PreflightError(
                f"no doc is relevant in {paths}: every measure would be 0. Give other qrels, or "
                "`measures: []` to evaluate nothing",
                kind="no-relevant-doc",
                file=paths,
            )
        chosen = topics.of_queries(judged)
        if not len(chosen):
            raise PreflightError(
                f"none of the {total:,} topics in {shown_paths(config.topics.path)} (first: "
                f"{topics[0].query_id!r}) is judged in {paths} (first: "
                f"{next(iter(judged), None)!r}): every measure would be 0. Give the qrels of "
                "these topics, or leave `qrels` out"
            )
        topics = chosen if config.topics.only_judged else topics
    kept = TopicTable.of(first_topics(topics, limit))
    if judged is not None and not len(kept.of_queries(judged)):
        raise PreflightError(
            f"none of the first {len(kept):,} topics (topics.limit) is judged in {paths}, though "
            f"{len(chosen):,} of all {total:,} are: there would be nothing to measure. Raise the "
            "limit, or set topics.only_judged: true to choose among the judged topics"
        )
    return ChosenTopics(
        kept, len(topics) - len(kept), tuple(reject for reject in rejects if reject.count), notes
    )


def check_apart(config: RunConfig) -> None:
    """Makes sure that no written file becomes a part of the corpus, whose digest would change.

    Raises:
        PreflightError: the corpus is a folder or a glob that includes files of the output or of the
            index.
    """
    run = config.cascade[:2][-1].name
    endings = {FORMATS[form].ending: config.in_parts(form) for form in config.run_formats}
    runs = [
        f"{RUNS}/{run}.{ending}{f'/part-0.{ending}' * in_parts}"
        for ending, in_parts in endings.items()
    ]
    our_files = [
        "plan-0.json",
        "topics-0.parquet",
        "retrieve/part-0.parquet",
        "tokenize-0/needed-0.bin",
        *runs,
    ]
    written = {"output": (config.output, our_files)}
    if config.index is not None:
        written["index.path"] = (config.index.path, [INFO_NAME, "segments_1"])
    for key, (folder, names) in written.items():
        storage.check_lasting(folder)
        taken = find_taken(config.corpus, [storage.join(folder, name) for name in names])
        if taken is not None:
            raise PreflightError(
                f"`{key}` ({folder}) is inside the corpus ({config.corpus.path}): what is written "
                f"there, such as {storage.name(taken)}, would be read as docs, and every run "
                f"would find another corpus. Give {key} a folder outside of the corpus, or "
                "corpus.path a glob that matches the docs alone"
            )


def check_writable(output: str) -> None:
    """Raises PreflightError where files cannot be written into an output, or would be lost."""
    probe = storage.join(output, temporary_name("writable"))
    try:
        storage.check_folder(output)
        storage.publish(probe, b"")
        storage.remove(probe)
        check_store(output)
    except UnreachableError as error:
        raise PreflightError(f"cannot write to the output {output}: {error}") from error
    except (OSError, ValueError) as error:
        raise PreflightError(
            f"cannot write to the output {output}: {error}. Give a folder that this user may "
            "write, with --output or `output:`"
        ) from error

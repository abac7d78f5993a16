"""From a configuration to a plan: reads and checks every input, so that nothing is found wrong after hours."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from beamrank.config.run import CandidatesConfig, DuoConfig, MonoConfig, RunConfig
from beamrank.errors import PreflightError
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.corpora import digest_corpus, find_taken, list_units
from beamrank.formats.qrels import read_qrels
from beamrank.formats.topics import read_topics
from beamrank.ranking.segments import SegmentRule
from beamrank.records import Topic
from beamrank.stages.given_run import candidates_digest
from beamrank.stages.plan import Plan, StageSpec, cut_shards, first_topics, max_doc_tokens
from beamrank.storage import files as storage
from beamrank.storage.special_files import check_regular
from models.checkpoints.check import Checkpoint, resolve_checkpoint
from models.lucene.index import INFO_NAME, build_index, check_index, needs_building
from models.scoring.backends.protocol import Device
from models.scoring.backends.registry import find_backend
from models.scoring.engine import usable_cores
from models.tokenizer.bert import BertTokenizer, load_tokenizer
from pipelines.console.progress import ConsoleProgress
from pipelines.output.run_names import RUNS, RunFile


def threads_of(config: RunConfig) -> int:
    """How many threads a process takes, torch and Lucene alike."""
    return config.threads or usable_cores()


def resolve_scoring(config: RunConfig) -> Device:
    """Device, dtype and padded tokens a batch."""
    return find_backend("torch").resolve(config.device, config.dtype)


def make_plan(config: RunConfig, talk: ConsoleProgress, scoring: Device | None = None) -> Plan:
    """Checks all inputs and decides all that a run's bytes depend on; builds the index where there is none.

    Args:
        config: what to run.
        talk: where warnings go.
        scoring: where scoring runs, if that is not this machine.

    Raises:
        ConfigError: a measure that does not exist.
        PreflightError: an input is missing or not as it must be, or the output cannot be written.
    """
    check_apart(config)
    _check_writable(config.output)
    return _decide(config, talk, scoring)


def planned(config: RunConfig) -> Plan | None:
    """What `make_plan` would return, without writing anything; None while the index has to be built first."""
    if config.index is not None and needs_building(config.index.path):
        return None
    return _decide(config, ConsoleProgress(quiet=True), None)


def _decide(config: RunConfig, talk: ConsoleProgress, scoring: Device | None) -> Plan:
    parse_measures(config.measures)
    topics = chosen_topics(config)
    if topics.left_out:
        total = len(topics.kept) + topics.left_out
        talk.note(f"a trial: the first {len(topics.kept):,} of {total:,} topics are run (topics.limit)")
    checkpoints = {
        kind: resolve_checkpoint(section.checkpoint, kind)
        for kind, section in (("mono", config.mono), ("duo", config.duo))
        if section is not None
    }
    for checkpoint in checkpoints.values():
        checkpoint.check_length(config.input.max_length)
        for warning in checkpoint.architecture.warnings:
            talk.warn(warning)
    if config.mono is not None:
        check_segments(config.mono, checkpoints["mono"])
    list_units(config.corpus)
    corpus = digest_corpus(config.corpus)
    stages = [_retrieve_spec(config, corpus.digest, talk)]
    if config.mono is not None:
        stages += _scoring_specs(config, corpus.digest, checkpoints, scoring or resolve_scoring(config))
    shards = cut_shards(topics.kept, config.shards)
    values = config.model_dump(mode="json")
    if not topics.left_out:
        values["topics"]["limit"] = None
    return Plan(config.run_tag, config.output, shards, tuple(stages), values, corpus)


@dataclass(frozen=True)
class ChosenTopics:
    """The topics to run, and how many others `topics.limit` left out."""

    kept: Sequence[Topic]
    left_out: int


def chosen_topics(config: RunConfig) -> ChosenTopics:
    """The topics to run; qrels are read also where they choose none, to find what is wrong with them now."""
    topics = read_topics(config.topics)
    if config.qrels is None:
        return _limited(topics, config)
    # They are read again when the runs are measured.
    check_regular(config.qrels)
    judged = read_qrels(config.qrels).relevance
    chosen = [topic for topic in topics if topic.query_id in judged]
    if not chosen:
        raise PreflightError(
            f"none of the {len(topics):,} topics in {config.topics.path} (first: {topics[0].query_id!r}) is judged in "
            f"{config.qrels} (first: {next(iter(judged), None)!r}): every measure would be 0. Give the qrels of these "
            "topics, or leave `qrels` out"
        )
    found = _limited(chosen if config.topics.only_judged else topics, config)
    if not any(topic.query_id in judged for topic in found.kept):
        raise PreflightError(
            f"none of the first {len(found.kept):,} topics (topics.limit) is judged in {config.qrels}, though "
            f"{len(chosen):,} of all {len(topics):,} are: there would be nothing to measure. Raise the limit, or set "
            "topics.only_judged: true to choose among the judged topics"
        )
    return found


def _limited(topics: Sequence[Topic], config: RunConfig) -> ChosenTopics:
    kept = first_topics(topics, config.topics.limit)
    return ChosenTopics(kept, len(topics) - len(kept))


def check_apart(config: RunConfig) -> None:
    """Makes sure that nothing that is written becomes a part of the corpus, whose digest would then change by itself.

    Raises:
        PreflightError: the corpus is a folder or a glob that takes files of the output or of the index for docs.
    """
    runs = [storage.join(RUNS, RunFile("mono", run_format=form).base) for form in config.run_formats]
    written = {"output": (config.output, ["plan-0.json", "retrieve/part-0.parquet", "tokenize-0/needed-0.bin", *runs])}
    if config.index is not None:
        written["index.path"] = (config.index.path, [INFO_NAME, "segments_1"])
    for key, (folder, names) in written.items():
        taken = find_taken(config.corpus, [storage.join(folder, name) for name in names])
        if taken is not None:
            raise PreflightError(
                f"`{key}` ({folder}) is inside the corpus ({config.corpus.path}): what is written there, such as "
                f"{storage.name(taken)}, would be read as docs, and every run would find another corpus. Give {key} a "
                "folder outside of the corpus, or corpus.path a glob that matches the docs alone"
            )


def _check_writable(output: str) -> None:
    probe = storage.join(output, f".writable-{os.getpid()}")
    try:
        storage.publish(probe, b"")
        storage.remove(probe)
    except (OSError, ValueError) as error:
        raise PreflightError(
            f"cannot write to the output {output}: {error}. Give a folder that this user may write, with --output or "
            "`output:`"
        ) from error


def ensure_index(config: RunConfig, corpus: str, talk: ConsoleProgress) -> str:
    """The digest of the configured index, which is built first where it is not there."""
    assert config.index is not None
    path = config.index.path
    if needs_building(path):
        talk.note(f"building the index {path}")
        with talk.bar("index") as bar:
            info = build_index(config.corpus, path, threads_of(config), bar, config.max_bad_rows)
        if info.bad_rows:
            first = "; ".join(f"{row.place}: {row.reason}" for row in info.bad_examples[:3])
            talk.warn(f"{info.bad_rows} rows of the corpus are not in the index (first: {first})")
    info = check_index(path, corpus)
    if info.empty_docs:
        talk.note(f"{info.empty_docs:,} docs of the corpus have no text: BM25 finds none of them")
    for warning in info.warnings:
        talk.warn(warning)
    return info.digest


def _retrieve_spec(config: RunConfig, corpus: str, talk: ConsoleProgress) -> StageSpec:
    if config.candidates is not None:
        given = config.candidates
        keys = {"run": candidates_digest(given.run), "k": given.k, **_ties(given)}
        return StageSpec("retrieve", "retrieve", keys, (), {"run": given.run})
    bm25 = config.first_stage_bm25
    index = ensure_index(config, corpus, talk)
    keys = {"index": index, "k1": bm25.k1, "b": bm25.b, "k": bm25.k}
    return StageSpec("retrieve", "retrieve", keys, (), {"index": config.index.path if config.index else ""})


def _ties(given: CandidatesConfig) -> dict[str, str]:
    """The default is left out, so that plans made before there was a choice keep their digest."""
    return {} if given.ties == "rank" else {"ties": given.ties}


def _scoring_specs(
    config: RunConfig, corpus: str, checkpoints: dict[str, Checkpoint], scoring: Device
) -> list[StageSpec]:
    assert config.mono is not None
    specs: dict[str, StageSpec] = {}
    tokenized = {}
    for kind, checkpoint in checkpoints.items():
        digest = read_tokenizer(checkpoint).digest
        name = f"tokenize-{digest[:8]}"
        tokenized[kind] = name
        keys = {
            "corpus": corpus,
            "tokenizer": digest,
            "max_doc_tokens": stored_doc_tokens(config, checkpoint),
            "k": config.mono.k,
            "on_missing_doc": config.on_missing_doc,
        }
        places = {"checkpoint": checkpoint.reference, "kind": kind}
        specs.setdefault(name, StageSpec(name, "tokenize", keys, ("retrieve",), places))
    shared = {
        "truncation": config.input.truncation,
        "max_query_length": config.input.max_query_length,
        "max_length": config.input.max_length,
        "device": scoring.device,
        "dtype": scoring.dtype,
        "token_budget": scoring.token_budget,
    }
    mono = checkpoints["mono"]
    mono_keys = {**shared, "checkpoint": mono.digest, "k": config.mono.k, **_segments(config.mono)}
    places = {"checkpoint": mono.reference}
    specs["mono"] = StageSpec("mono", "mono", mono_keys, (tokenized["mono"],), places, mono.architecture.token_cost)
    if config.duo is not None:
        duo = checkpoints["duo"]
        duo_keys = {**shared, "checkpoint": duo.digest, "k": config.duo.k, **_sampling(config.duo)}
        if config.mono.segments is not None:
            duo_keys["pooling"] = config.mono.pooling
        places = {"checkpoint": duo.reference}
        specs["duo"] = StageSpec(
            "duo", "duo", duo_keys, (tokenized["duo"], "mono"), places, duo.architecture.token_cost
        )
    return list(specs.values())


def read_tokenizer(checkpoint: Checkpoint) -> BertTokenizer:
    """A checkpoint's tokenizer.

    Raises:
        PreflightError: it is not a plain BERT tokenizer, or not this checkpoint's.
    """
    tokenizer = load_tokenizer(checkpoint.folder)
    checkpoint.check_vocabulary(tokenizer.vocab_size)
    return tokenizer


def stored_doc_tokens(config: RunConfig, checkpoint: Checkpoint) -> int:
    """How many wordpieces of a doc are stored for a checkpoint."""
    if checkpoint.kind == "mono" and config.mono is not None and config.mono.segments is not None:
        return max_doc_tokens(config.mono.segments.doc_tokens)
    return max_doc_tokens(config.input.max_length * checkpoint.architecture.chunks)


def check_segments(mono: MonoConfig, checkpoint: Checkpoint) -> None:
    """Raises PreflightError where docs would be cut twice."""
    if mono.segments is not None and checkpoint.architecture.chunks > 1:
        raise PreflightError(
            f"the checkpoint {checkpoint.reference} cuts a doc into {checkpoint.architecture.chunks} chunks itself, as "
            "it was trained to: leave out mono.segments"
        )


def segment_rule(mono: MonoConfig) -> SegmentRule | None:
    """How mono's docs are cut; None where they are read whole."""
    segments = mono.segments
    return None if segments is None else SegmentRule(segments.length_tokens, segments.stride, segments.most)


def _segments(mono: MonoConfig) -> dict[str, list[int]]:
    """What was scored depends on segments; how they are pooled is left to those who read the scores."""
    rule = segment_rule(mono)
    return {} if rule is None else {"segments": list(rule)}


def _sampling(duo: DuoConfig) -> dict[str, int]:
    """What was asked of the model depends on the aggregation only where opponents are sampled."""
    return {} if duo.opponents is None else {"opponents": duo.opponents, "seed": duo.seed}

"""The plan: the topics or rows of each shard, and the keys of each stage that decide the bytes of
its parts.

A plan is made once, before anything runs, and never depends on the runner or its parallelism. Its
status can be read without models, Java or Beam.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter

from beamrank.commit.listing import (
    CURRENT,
    FOLDERS,
    MEASURES,
    PLAN,
    RECEIPTS,
    RUNS,
    SHARDS,
    RejectsFile,
)
from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.commit.shards import InputPart, Shard, Shards, ShardTask, read_shards, write_shards
from beamrank.commit.stage import StageRecord
from beamrank.errors import BeamrankError, PreflightError
from beamrank.formats.corpora import DigestedCorpus
from beamrank.formats.files import hash_files
from beamrank.formats.topic_table import TopicTable
from beamrank.storage import files as storage
from beamrank.storage.documents import (
    checked_json,
    checked_values,
    digest,
    validated,
    with_texts,
)
from beamrank.storage.globs import relative_to, resolved_in
from beamrank.storage.streams import errors_as
from beamrank.storage.urls import refuse_credentials

# Raised whenever a stage would write other bytes from the same input.
ENGINE_VERSION = 6
# The version of release 0.3.0: outputs since then are read.
OLDEST_READ_VERSION = 6
FindManifest: TypeAlias = Callable[[StageFolder, str, tuple[str, ...]], Manifest | None]
"""Finds the manifest of a stage by its folder, its name and the digests of its shards."""


@dataclass(frozen=True)
class Rejected:
    """The rows of an input that a plan leaves out: how many, and their file below `rejects/`."""

    rows: Annotated[int, Field(ge=1)]
    file: Annotated[RejectsFile, Field(min_length=1)]


class EngineVersionError(PreflightError):
    """A plan was written by a version of the engine that cannot be read, or not be resumed."""


class CurrentPlan(NamedTuple):
    """The pointer of a folder: the plan that was last run into it, its configuration's digest, and
    the process that made it current.
    """

    plan: Annotated[str, Field(pattern=f"^{PLAN.pattern}$")]
    config: str
    owner: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class _Stored:
    """The content of a plan's file. Other keys are refused: one could be the digest, under a
    damaged name.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    engine_version: int
    digest: str
    run_tag: str
    shards_file: Annotated[str, Field(pattern=f"^{SHARDS.pattern}$")]
    shards: Annotated[int, Field(ge=1)]
    stages: tuple[StageRecord, ...]
    config: Mapping[str, Any]
    rejects: Mapping[str, Rejected] = field(default_factory=dict)
    qrels: Mapping[str, str] = field(default_factory=dict)
    written: str = ""

    def with_paths(self, change: Callable[[str], str]) -> "_Stored":
        """The same with other paths; `keys` of stages hold none."""
        stages = (
            replace(stage, settings=with_texts(stage.settings, change)) for stage in self.stages
        )
        config, qrels = with_texts([self.config, self.qrels], change)
        return replace(self, stages=tuple(stages), config=config, qrels=qrels)


_CURRENT, _STORED = TypeAdapter(CurrentPlan), TypeAdapter(_Stored)


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before work starts.

    `corpus` holds the files behind the corpus digest. It is not stored: a plan that is read from a
    file has none. `rejects` are the rows of the topics and qrels that are left out, by the kind of
    input. `qrels` has the SHA-256 of each file of judgments, by its URL, when it was planned, or
    last measured; `written` is the `config_digest` of what the user wrote, before anything was
    found. Paths in a plan's file are `relative_to` its output; here they are absolute.
    """

    run_tag: str
    output: str
    shards: Shards
    stages: tuple[StageRecord, ...]
    config: Mapping[str, Any]
    rejects: Mapping[str, Rejected] = field(default_factory=dict, compare=False)
    corpus: DigestedCorpus | None = field(default=None, compare=False, repr=False)
    qrels: Mapping[str, str] = field(default_factory=dict, compare=False)
    written: str = field(default="", compare=False)
    engine_version: int = ENGINE_VERSION

    @cached_property
    def digest(self) -> str:
        """Covers everything that decides the bytes of the parts; never the run tag, output,
        measures or qrels.
        """
        stages = [[stage.name, stage.type_name, stage.keys, stage.inputs] for stage in self.stages]
        return digest([self.engine_version, self.shards.digests, stages])

    @property
    def name(self) -> str:
        """The name of its file."""
        return PLAN.name(self.digest)

    @property
    def limited(self) -> bool:
        """Whether `topics.limit` left topics out."""
        return self.config.get("topics", {}).get("limit") is not None

    @property
    def has_runs(self) -> bool:
        """Whether its stages yield rankings, from which runs are written."""
        return any(stage.run_name is not None for stage in self.stages)

    @property
    def topics(self) -> TopicTable:
        """All topics, in the order of the shards."""
        return self.shards.topics

    def check_engine(self) -> None:
        """Raises EngineVersionError where a different engine version made it: the same inputs give
        other bytes now.
        """
        if self.engine_version != ENGINE_VERSION:
            raise EngineVersionError(
                f"{storage.join(self.output, self.name)} was made by engine version "
                f"{self.engine_version} and this is version {ENGINE_VERSION}: its output is read, "
                "but not resumed, reused or scored again. Use the beamrank that made it, or run "
                "again into a new folder"
            )

    def stored_shards(self) -> str:
        """The URL of the file with the topics or rows of the shards, once the plan is written."""
        return storage.join(self.output, self._as_stored().shards_file)

    def _as_stored(self) -> _Stored:
        """The content of its file; raises ValueError where it is missing or damaged."""
        values = checked_values(_content(storage.join(self.output, self.name)))
        return _stored(values, self.output)

    def measured_before(self) -> "Plan":
        """The plan with the `qrels` of its file, if it has one: its measures were made from
        these.
        """
        with suppress(ValueError):
            return replace(self, qrels=self._as_stored().qrels or self.qrels)
        return self

    def changed_qrels(self) -> list[str]:
        """A line for each file of judgments that is not as it was when the measures were written;
        none where the files cannot be read.
        """
        measures = storage.join(self.output, RUNS, MEASURES)
        paths = self.config.get("qrels")
        with suppress(BeamrankError, OSError):
            if self.qrels and paths and storage.exists(measures):
                now = hash_files(paths["path"] if isinstance(paths, Mapping) else paths)
                changed = sorted(dict(now.items() ^ self.qrels.items()))
                return [
                    f"the judgments {url} have changed since {measures} was written: "
                    "`beamrank run CONFIG --stage runs` measures again"
                    for url in changed
                ]
        return []

    def stage(self, name: str) -> StageRecord:
        """A stage by its folder's name."""
        return next(stage for stage in self.stages if stage.name == name)

    def of_step(self, step: str) -> list[StageRecord]:
        """The stages of one step; two models can need two that tokenize."""
        return [stage for stage in self.stages if stage.step == step]

    def folder(self, name: str) -> StageFolder:
        """A stage's folder."""
        return StageFolder(storage.join(self.output, name))

    def shard_digest(
        self, stage: StageRecord, shard: int, inputs: Sequence[Receipt], of_all: str
    ) -> str:
        """The digest of a shard's receipt, given the receipts of the stages that it reads, and the
        stage's `digest_of_all`.
        """
        topics_digest = self.shards.digests[shard] if stage.reads_input else None
        values = [
            self.engine_version,
            stage.type_name,
            stage.keys,
            [receipt.part_sha256 for receipt in inputs],
            topics_digest,
        ]
        return digest([*values, of_all] if stage.waits_for else values)

    def shard_digests(self, stage: StageRecord, inputs: Sequence[Manifest]) -> tuple[str, ...]:
        """`shard_digest` of each shard, given the sealed inputs of the stage."""
        shards = range(len(self.shards))
        of_all = self.digest_of_all(
            stage, dict(zip(stage.inputs, inputs, strict=True)).get(stage.waits_for)
        )
        return tuple(
            self.shard_digest(stage, at, [manifest.receipts[at] for manifest in inputs], of_all)
            for at in shards
        )

    def digest_of_all(self, stage: StageRecord, sealed: Manifest | None = None) -> str:
        """The digest of all parts of the input that a stage waits for; empty where there is no such
        input, or it is not sealed yet.
        """
        manifest = sealed or self.manifest(stage.waits_for)
        return (
            ""
            if manifest is None
            else digest([receipt.part_sha256 for receipt in manifest.receipts])
        )

    def task(
        self, stage: StageRecord, shard: int, inputs: Sequence[Receipt], of_all: str = ""
    ) -> ShardTask:
        """The task of a shard of a stage, given what `shard_digest` takes."""
        given = self.shards[shard] if stage.reads_input else Shard(shard)
        parts = [
            InputPart(self.folder(name), receipt)
            for name, receipt in zip(stage.inputs, inputs, strict=True)
        ]
        shard_digest = self.shard_digest(stage, shard, inputs, of_all)
        return ShardTask(
            self.folder(stage.name), shard, shard_digest, given.topics, tuple(parts), given.rows
        )

    def tasks(self, stage: StageRecord, inputs: Sequence[Manifest]) -> list[ShardTask]:
        """The tasks of a stage's shards, given its sealed inputs."""
        assert not stage.waits_for
        return [
            self.task(stage, shard, [manifest.receipts[shard] for manifest in inputs])
            for shard in range(len(self.shards))
        ]

    def manifests(self, find: FindManifest, name: str | None = None) -> dict[str, Manifest]:
        """The manifests by name, of stages whose inputs have one; each is looked for once.

        Args:
            find: `StageFolder.seal`, `gather` or `stated`, for example.
            name: only this stage and the stages that it reads.
        """
        needed = {stage.name for stage in self.stages} if name is None else {name}
        for stage in reversed(self.stages):
            needed |= set(stage.inputs) if stage.name in needed else set()
        manifests: dict[str, Manifest] = {}
        for stage in self.stages:
            if stage.name in needed and manifests.keys() >= set(stage.inputs):
                digests = self.shard_digests(stage, list(map(manifests.__getitem__, stage.inputs)))
                manifest = find(self.folder(stage.name), stage.name, digests)
                manifests |= {} if manifest is None else {stage.name: manifest}
        return manifests

    def seal(self, name: str) -> Manifest | None:
        """A stage's manifest; seals the stage if all receipts exist. None while it or an input is
        unfinished.
        """
        return self.manifests(StageFolder.seal, name).get(name)

    def gather(self, name: str) -> Manifest | None:
        """As `seal` would seal it; writes nothing."""
        return self.manifests(StageFolder.gather, name).get(name)

    def manifest(self, name: str) -> Manifest | None:
        """A stage's manifest if it exists. Writes nothing."""
        return self.manifests(lambda folder, _, digests: folder.manifest(digests), name).get(name)

    @property
    def config_digest(self) -> str:
        """The digest of the configuration; the plan digest does not cover all of it, such as the
        measures.
        """
        return config_digest(self.config, self.output)

    def is_named_by(self, current: CurrentPlan) -> bool:
        """Whether the pointer of a folder names this plan, with this configuration."""
        return current == (self.name, self.config_digest, current.owner)

    def make_current(self, owner: Mapping[str, Any] | None = None) -> None:
        """Writes the pointer to this plan, and who made it current."""
        current = CurrentPlan(self.name, self.config_digest, owner)
        storage.replace(storage.join(self.output, CURRENT), checked_json(current._asdict()))

    def publish(self, owner: Mapping[str, Any] | None = None) -> str:
        """Writes `plan-<digest12>.json`, the topics or rows of its shards, and the pointer to it;
        returns its name.
        """
        self.write()
        self.make_current(owner)
        return self.name

    def write(self) -> None:
        """Writes the plan and the topics or rows of its shards; the pointer keeps naming a
        different one.

        Raises:
            PreflightError: a link in the place of a folder, such as one to a disk, leads nowhere.
        """
        stages = [stage.name for stage in self.stages]
        for name in (*FOLDERS, *stages, *(f"{stage}/{RECEIPTS}" for stage in stages)):
            url = storage.join(self.output, name)
            if storage.is_link(url) and not storage.is_folder(url) and name != RUNS:
                raise PreflightError(
                    f"{url} is a link that leads to no folder, so nothing can be written there: "
                    "mount what it leads to, or remove the link"
                )
        from_output = partial(relative_to, self.output)
        shards_file = write_shards(self.shards.with_urls(from_output), self.output)
        identity = self.engine_version, self.digest, self.run_tag
        stored = _Stored(
            *identity,
            shards_file,
            len(self.shards),
            self.stages,
            self.config,
            self.rejects,
            self.qrels,
            self.written,
        ).with_paths(from_output)
        storage.replace(storage.join(self.output, self.name), checked_json(asdict(stored)))


def read_current(output: str) -> CurrentPlan | None:
    """The plan that was last run into a folder, if any; raises PreflightError where the pointer
    cannot be read.
    """
    url = storage.join(output, CURRENT)
    try:
        return validated(_CURRENT, checked_values(storage.read_bytes(url)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise PreflightError(
            f"{url} cannot be read ({error}): run again to write it again"
        ) from error


def plan_names(output: str) -> list[str]:
    """The names of all plans that were run into a folder."""
    return sorted(name for name in storage.sizes_bytes(output) if re.fullmatch(PLAN.pattern, name))


def read_plan(output: str) -> Plan:
    """The plan that was last run into a folder.

    Raises:
        PreflightError: the folder holds no run, or one of a different engine version, or its plan
            is damaged.
    """
    refuse_credentials(output, "DIR")
    output = storage.absolute(output)
    with errors_as(PreflightError, output):
        current = read_current(output)
    if current is None:
        raise PreflightError(
            f"{output} holds no beamrank run: there is no {CURRENT} in it", kind="no-output"
        )
    try:
        return load_plan(output, current.plan)
    except ValueError as error:
        url = storage.join(output, current.plan)
        raise PreflightError(
            f"the plan {url} cannot be read ({error}): run again to write it again"
        ) from error


def load_plan(output: str, name: str) -> Plan:
    """One plan of a folder, checked against its name and the name of its shards.

    Raises:
        EngineVersionError: an engine version wrote it that is later than this one, or older than
            release 0.3.0.
        ValueError: the file is damaged.
    """
    url = storage.join(output, name)
    values = checked_values(_content(url))
    if values.get("engine_version", ENGINE_VERSION) not in range(
        OLDEST_READ_VERSION, ENGINE_VERSION + 1
    ):
        raise EngineVersionError(
            f"{url} was written by engine version {values['engine_version']}, and this beamrank "
            f"reads versions {OLDEST_READ_VERSION} to {ENGINE_VERSION}: use the beamrank that "
            "wrote it, or run again into a new folder"
        )
    stored = _stored(values, output)
    names: set[str] = set()
    for stage in stored.stages:
        if not names.issuperset(stage.inputs):
            raise ValueError(f"the stage {stage.name} reads one that is not before it")
        names.add(stage.name)
    shards = read_shards(
        stored.shards_file, _content(storage.join(output, stored.shards_file)), stored.shards
    ).with_urls(partial(resolved_in, output))
    given = stored.rejects, None, stored.qrels, stored.written, stored.engine_version
    plan = Plan(stored.run_tag, output, shards, stored.stages, stored.config, *given)
    if plan.name != name:
        raise ValueError("it is not the plan of its name")
    return plan


def config_digest(values: Mapping[str, Any], output: str) -> str:
    """The digest of a configuration, wherever its output is with what belongs to it."""
    decisive = {key: value for key, value in values.items() if key not in ("output", "reuse")}
    return digest(with_texts(decisive, partial(relative_to, output)))


def _stored(values: Mapping[str, Any], output: str) -> _Stored:
    return validated(_STORED, values).with_paths(partial(resolved_in, output))


def _content(url: str) -> bytes:
    try:
        return storage.read_bytes(url)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"{storage.name(url)} is missing") from error

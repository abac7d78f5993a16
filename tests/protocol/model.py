"""The commit protocol as a model: what launchers, `--only` processes and gc ask of a store.

A function stands for one of the code, which it names. Contents are values that tell what a file
holds: a part its plan, shard and attempt. Each of `PROTECTIONS` can be taken out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.protocol.world import OLD, YOUNG, Program, Request, Snapshot, look, stands_for

DONE, IN_USE, INCOMPLETE, OPEN, FAILED = "done", "in use", "incomplete", "left open", "failed"
"""How a process ends: with exit code 0, three times 75, and 1."""
SHORT = "short"
"""The content of a part that was cut."""
PROTECTIONS: dict[str, str] = {
    "create-only": "one-counts",
    "receipt after part": "part-whole",
    "digest in the name": "part-whole",
    "size check": "done-is-done",
    "check inside a receipt": "done-is-done",
    "first receipt wins": "one-counts",
    "manifest last": "done-is-done",
    "_SUCCESS first": "one-plan",
    "_SUCCESS last": "done-is-done",
    "current plan before runs": "one-plan",
    "gc's 24 hours": "part-whole",
    "sweeps by age": "needed-stays",
    "the owner's lock": "one-plan",
    "gc waits for launchers": "needed-stays",
    "the loser uses the published answer": "one-answer",
    "an open shard's file before the exit": "open-told",
}
"""Each protection, and the invariant that breaks without it."""
CURRENT, RUN, SUCCESS = "current-plan.json", "runs/mono.trec", "runs/mono.parquet/_SUCCESS"
GC = "gc"


class Receipt(NamedTuple):
    """The content of a receipt: of which digest it is, and what its part holds; whether it was
    changed after it was written.
    """

    digest: str
    shard: int
    part: str
    content: Any
    changed: bool = False


def part_name(stage: str, shard: int, content: Any, named: bool = True) -> str:
    """The name of a part: with the digest of its content."""
    return f"{stage}/part-{shard}" + (f"-{'.'.join(map(str, content[2:]))}" if named else "")


def receipt_name(stage: str, shard: int, digest: str) -> str:
    return f"{stage}/receipts/{shard}-{digest}"


def manifest_name(stage: str, digests: Sequence[str]) -> str:
    return f"{stage}/manifest-{'+'.join(digests)}"


def run_part(shard: int) -> str:
    return f"runs/mono.parquet/part-{shard}"


class Checks(NamedTuple):
    """What a reader of receipts checks."""

    size: bool
    inside: bool


def counts(receipt: Any, digest: str, files: dict[str, Any], checks: Checks) -> bool:
    """`beamrank.commit.receipts.why_broken`: whether a receipt counts, by names and sizes."""
    if not isinstance(receipt, Receipt) or receipt.digest != digest:
        return False
    if checks.inside and receipt.changed:
        return False
    return receipt.part in files and not (checks.size and files[receipt.part] == SHORT)


@dataclass(frozen=True)
class Model:
    """The programs of a configuration.

    Attributes:
        shards: how many there are.
        stages: their names; one reads the part of the one before.
        varies: whether attempts at a shard may give different bytes.
        in_parts: whether the run is a folder of parts.
        is_local: whether files are written under a hidden name before they are linked.
        at_once: whether no time passes between the look at the current plan and the put of a run.
        asks: whether a stage asks a server: its answers cost money, and may fail to come.
        shared: whether other plans and gc use the output: then launchers have entries, topics are
            written, and files may go while they are listed.
        without: the protections that are taken out.
    """

    shards: int = 1
    stages: tuple[str, ...] = ("mono",)
    varies: bool = True
    in_parts: bool = False
    is_local: bool = False
    at_once: bool = False
    asks: bool = False
    shared: bool = False
    without: frozenset[str] = frozenset()

    def has(self, protection: str) -> bool:
        assert protection in PROTECTIONS
        return protection not in self.without

    @property
    def checks(self) -> Checks:
        """What its readers of receipts check."""
        return Checks(self.has("size check"), self.has("check inside a receipt"))

    # Launchers.

    @stands_for("pipelines.execute:execute")
    def launcher(self, me: int, plan: str) -> Program:
        """A launcher of a plan, which does all open shards."""
        if not (yield from self.launched(me, plan)):
            return IN_USE
        yield from self.publish_plan(me, plan)
        if self.is_local:
            yield from self.remove_leftovers()
        before: tuple[Receipt, ...] = ()
        status = DONE
        for stage in self.stages:
            sealed = yield from self.run_stage(me, plan, stage, before)
            if isinstance(sealed, str):
                status = sealed
                break
            before = sealed
        if status == DONE:
            status = yield from self.write_runs(me, plan, before)
        if self.shared:
            yield Request("remove", entry_name(plan, me))
        return status

    @stands_for("beamrank.commit.owner:launched")
    def launched(self, me: int, plan: str) -> Program:
        """Whether this process may work in the output: no other plan's does."""
        if (
            not self.shared
            or not self.has("the owner's lock")
            or (plan == GC and not self.has(GC_WAITS))
        ):
            return True
        if not (yield from self.refuse_others(me, plan)):
            return False
        yield Request("create", entry_name(plan, me), me)
        if not (yield from self.refuse_others(me, plan)):
            yield Request("remove", entry_name(plan, me))
            return False
        return True

    @stands_for("beamrank.commit.owner:_refuse_others")
    def refuse_others(self, me: int, plan: str) -> Program:
        others, ended = yield look("launcher-*", entries, me, plan)
        for name in ended:
            yield Request("remove", name)
        return not others

    @stands_for("beamrank.commit.plan:Plan.publish")
    def publish_plan(self, me: int, plan: str) -> Program:
        topics = f"topics-{plan}"
        if self.shared:
            if not (yield look(topics, is_there, topics)):
                yield Request("replace", topics, plan)
            yield Request("replace", f"plan-{plan}", plan)
        yield Request("replace", CURRENT, (plan, me))

    @stands_for("pipelines.launcher:Launcher.run_stage")
    def run_stage(self, me: int, plan: str, stage: str, before: tuple[Receipt, ...]) -> Program:
        """The receipts of a stage once it is sealed, or how the process ends."""
        digests = self.digests(plan, before)
        sealed = yield from self.seal(stage, digests)
        if sealed is not None:
            return sealed
        done = yield from self.valid_receipts(stage, tuple(enumerate(digests)))
        status = INCOMPLETE
        for shard in range(self.shards):
            if shard not in dict(done):
                receipt = yield from self.attempt(me, plan, stage, shard, digests[shard], before)
                status = f"{OPEN}: {stage} {shard}-{digests[shard]}" if receipt is None else status
        sealed = yield from self.seal(stage, digests)
        return status if sealed is None else sealed

    def digests(self, plan: str, before: tuple[Receipt, ...]) -> tuple[str, ...]:
        """`beamrank.commit.plan.Plan.shard_digests`: of the plan and the parts that are read."""
        if not before:
            return (plan,) * self.shards
        return tuple(f"{plan}.{receipt.content[-1]}" for receipt in before)

    # A shard.

    @stands_for("models.stages.attempt:attempt")
    def attempt(
        self, me: int, plan: str, stage: str, shard: int, digest: str, before: tuple[Receipt, ...]
    ) -> Program:
        """The receipt of a shard, of this attempt or of an earlier one; None if it stays open."""
        receipt = yield from self.receipt(stage, shard, digest)
        if receipt is not None:
            return receipt
        content = ("part", plan, digest, shard, me if self.varies else "-")
        if self.asks:
            answer = yield from self.ask(me, shard)
            if answer is None:
                if self.has("an open shard's file before the exit"):
                    yield from self.leave_open(stage, shard, digest)
                return None
            content = ("part", plan, digest, shard, answer)
        return (yield from self.commit(me, stage, shard, digest, content))

    @stands_for("beamrank.commit.receipts:StageFolder.receipt")
    def receipt(self, stage: str, shard: int, digest: str) -> Program:
        return (yield look(*self.reading(stage, shard, digest)))

    def reading(self, stage: str, shard: int, digest: str) -> tuple[Any, ...]:
        name = receipt_name(stage, shard, digest)
        return name, valid_receipt, name, digest, self.checks

    @stands_for("beamrank.commit.receipts:StageFolder.commit")
    def commit(self, me: int, stage: str, shard: int, digest: str, content: Any) -> Program:
        """Publishes a part, then its receipt; returns the one that counts."""
        part = part_name(stage, shard, content, self.has("digest in the name"))
        receipt = Receipt(digest, shard, part, content)
        if not self.has("receipt after part"):
            yield from self.publish_once(stage, receipt)
        if self.is_local:
            yield from self.publish_file(me, part, content)
        else:
            yield from self.publish_content(part, content)
        return (yield from self.publish_once(stage, receipt))

    @stands_for("beamrank.storage.local_files:publish_file")
    def publish_file(self, me: int, name: str, content: Any) -> Program:
        """Writes a hidden file, which is linked under its name."""
        yield Request("create", f".{name}.{me}.tmp", me)
        yield Request("create", name, content)
        yield Request("remove", f".{name}.{me}.tmp")

    @stands_for("beamrank.storage.local_files:remove_leftovers")
    def remove_leftovers(self) -> Program:
        """Removes the hidden files of processes that ended."""
        names = yield look("launcher-*, .*.tmp", hidden_names, self.has("sweeps by age"))
        for name in names:
            yield Request("remove", name, needless=True)

    @stands_for("beamrank.storage.files:publish_content")
    def publish_content(self, name: str, content: Any) -> Program:
        if not (yield Request("create", name, content)):
            yield Request("replace", name, content)

    @stands_for("beamrank.commit.receipts:publish_once")
    def publish_once(self, stage: str, receipt: Receipt) -> Program:
        name = receipt_name(stage, receipt.shard, receipt.digest)
        if not self.has("first receipt wins"):
            yield Request("replace", name, receipt)
            return receipt
        if not (yield Request("create", name, receipt)):
            first = yield look(*self.reading(stage, receipt.shard, receipt.digest))
            if first is not None:
                return first
            yield Request("replace", name, receipt)
        return receipt

    @stands_for("models.stages.compute:ShardInputs.ask")
    def ask(self, me: int, shard: int) -> Program:
        """The answer to the question of all shards: one that is kept, else that of a call."""
        kept = yield look("asked/question", content_of, "asked/question")
        if kept is not None:
            return kept
        if not (yield Request("call", f"{me}-{shard}")):
            return None
        answer = f"answer{me}{shard}"
        return (yield from self.keep(answer))

    @stands_for("beamrank.commit.asked:KeptAnswers.keep")
    def keep(self, answer: str) -> Program:
        if (yield Request("create", "asked/question", answer)):
            return answer
        first = yield look("asked/question", content_of, "asked/question")
        return first if self.has("the loser uses the published answer") else answer

    @stands_for("beamrank.commit.receipts:StageFolder.leave_open")
    def leave_open(self, stage: str, shard: int, digest: str) -> Program:
        yield Request("replace", f"{stage}/receipts/open-{shard}-{digest}", "no answer")

    # A stage.

    @stands_for("beamrank.commit.receipts:StageFolder.valid_receipts")
    def valid_receipts(self, stage: str, digests: tuple[tuple[int, str], ...]) -> Program:
        """The receipts that count, by shard; others are removed."""
        valid, broken = yield from self.read_receipts(stage, digests)
        for name in broken:
            yield Request("remove", name)
        return valid

    @stands_for("beamrank.commit.receipts:StageFolder._read")
    def read_receipts(self, stage: str, digests: tuple[tuple[int, str], ...]) -> Program:
        names = tuple(receipt_name(stage, shard, digest) for shard, digest in digests)
        contents = None
        if self.shared:
            contents = yield look(f"{stage}/receipts/*", contents_of, names)
        return (yield look(f"{stage}/part-*", sized_parts, names, contents, self.checks))

    @stands_for("beamrank.commit.receipts:StageFolder.seal")
    def seal(self, stage: str, digests: tuple[str, ...]) -> Program:
        """The receipts of a sealed stage, in order; None while one is missing."""
        name = manifest_name(stage, digests)
        sealed = yield look(name, manifest_of, name, self.checks)
        if sealed is not None:
            return sealed
        valid, _ = yield from self.read_receipts(stage, tuple(enumerate(digests)))
        if len(valid) < self.shards and self.has("manifest last"):
            return None
        manifest = tuple(receipt for _, receipt in valid)
        if not (yield Request("create", name, manifest)):
            first = yield look(name, manifest_of, name, self.checks)
            if first is not None:
                return first
            yield Request("replace", name, manifest)
        return manifest

    # Runs.

    @stands_for("pipelines.runs.run_files:write_run_files")
    def write_runs(self, me: int, plan: str, sealed: tuple[Receipt, ...]) -> Program:
        """Writes the run of a plan from its last stage, in one file or in parts."""
        if self.in_parts:
            return (yield from self.write_folder(me, plan, sealed))
        rows = yield look("parts of the sealed stage", rows_of, sealed)
        if rows is None:
            return INCOMPLETE
        if not self.at_once and not (yield from self.is_current(plan)):
            return IN_USE
        checked = self.at_once and self.has("current plan before runs")
        is_written = yield Request("replace", RUN, (plan, *rows), plan=plan if checked else "")
        return DONE if is_written else IN_USE

    @stands_for("beamrank.commit.owner:check_current")
    def is_current(self, plan: str) -> Program:
        if not self.has("current plan before runs"):
            return True
        return (yield look(CURRENT, content_of, CURRENT))[0] == plan

    @stands_for("pipelines.runs.run_files:_begin_folders")
    def write_folder(self, me: int, plan: str, sealed: tuple[Receipt, ...]) -> Program:
        if not (yield from self.is_current(plan)):
            return IN_USE
        yield from self.begin()
        if not self.has("_SUCCESS last"):
            yield Request("replace", SUCCESS, plan)
        for shard in range(self.shards):
            yield from self.write_part(plan, shard, sealed)
        if not (yield from self.is_current(plan)):
            return IN_USE
        return (yield from self.seal_folder(plan))

    @stands_for("pipelines.runs.run_file:PartFolder.begin")
    def begin(self) -> Program:
        if self.has("_SUCCESS first"):
            yield Request("remove", SUCCESS)
        others = yield look("runs/mono.parquet/*", other_parts, self.shards)
        for name in others:
            yield Request("remove", name)

    @stands_for("pipelines.runs.run_file:PartFolder.write")
    def write_part(self, plan: str, shard: int, sealed: tuple[Receipt, ...]) -> Program:
        yield Request("replace", run_part(shard), (plan, sealed[shard].content))

    @stands_for("pipelines.runs.run_file:PartFolder.seal")
    def seal_folder(self, plan: str) -> Program:
        names = yield look("runs/mono.parquet/*", names_below, "runs/mono.parquet/")
        if len(names) < self.shards:
            return FAILED
        others = yield look("runs/mono.parquet/*", other_parts, self.shards)
        for name in others:
            yield Request("remove", name)
        yield Request("replace", SUCCESS, plan)
        return DONE

    # Shares.

    @stands_for("pipelines.shares:ShareLauncher.run")
    def share(self, me: int, plan: str, own: tuple[int, ...]) -> Program:
        """A process of `--only`: its shards go through all stages, and who is last writes the
        run.
        """
        if not (yield from self.launched(me, plan)):
            return IN_USE
        yield from self.publish_plan(me, plan)
        before: tuple[Receipt, ...] = ()
        status: str | None = None
        for stage in self.stages:
            digests = tuple(zip(own, self.own_digests(plan, own, before), strict=True))
            done = yield from self.valid_receipts(stage, digests)
            for shard, digest in digests:
                if shard not in dict(done):
                    yield from self.attempt(me, plan, stage, shard, digest, before)
            valid, _ = yield from self.read_receipts(stage, digests)
            if len(valid) < len(own):
                status = INCOMPLETE
                break
            before = tuple(receipt for _, receipt in valid)
        if status is None:
            status = yield from self.finish(me, plan)
        if self.shared:
            yield Request("remove", entry_name(plan, me))
        return status

    def own_digests(
        self, plan: str, own: tuple[int, ...], before: tuple[Receipt, ...]
    ) -> tuple[str, ...]:
        """The digests of some shards, given their receipts of the stage before."""
        if not before:
            return (plan,) * len(own)
        return tuple(f"{plan}.{receipt.content[-1]}" for receipt in before)

    @stands_for("pipelines.shares:ShareLauncher.finish")
    def finish(self, me: int, plan: str) -> Program:
        before: tuple[Receipt, ...] = ()
        for stage in self.stages:
            sealed = yield from self.seal(stage, self.digests(plan, before))
            if sealed is None:
                return DONE
            before = sealed
        return (yield from self.write_runs(me, plan, before))

    # gc.

    @stands_for("pipelines.commands.output:gc")
    def gc(self, me: int, ahead: bool) -> Program:
        """Removes what nobody needs, on a machine whose clock may be an hour ahead."""
        if not (yield from self.launched(me, GC)):
            return IN_USE
        age = YOUNG if not self.has("gc's 24 hours") else OLD - ahead
        garbage = yield from self.find_garbage(age)
        for name in garbage:
            yield Request("remove", name, needless=True)
        yield Request("remove", entry_name(GC, me))
        return DONE

    @stands_for("beamrank.commit.check:find_garbage")
    def find_garbage(self, age: int) -> Program:
        current = yield look(CURRENT, content_of, CURRENT)
        if current is None:
            return ()
        top = yield look("DIR", old_names, "topics-", age)
        unnamed = yield look("plan-*", topics_without_plan, top)
        inside, is_idle = yield look("mono/*", old_in_stage, "mono", age)
        kept = yield look("mono/receipts/*", kept_in_stage, "mono", current[0], is_idle)
        receipts = tuple(name for name in inside if "/receipts/" in name and name not in kept)
        parts = tuple(name for name in inside if "/part-" in name and name not in kept)
        return (*receipts, *parts, *unnamed)


GC_WAITS = "gc waits for launchers"


def entry_name(plan: str, number: int) -> str:
    return f"launcher-{plan}-{number}"


# What a look reads.


def entries(now: Snapshot, me: int, plan: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The entries of other plans' launchers that run, and all that ended."""
    names = [
        (name, content in now.alive)
        for name, content in sorted(now.contents.items())
        if name.startswith("launcher-") and name != entry_name(plan, me)
    ]
    others = tuple(n for n, runs in names if runs and not n.startswith(f"launcher-{plan}-"))
    return others[:1], () if others else tuple(name for name, runs in names if not runs)


def is_there(now: Snapshot, name: str) -> bool:
    return name in now.contents


def content_of(now: Snapshot, name: str) -> Any:
    return now.contents.get(name)


def contents_of(now: Snapshot, names: tuple[str, ...]) -> tuple[Any, ...]:
    files = now.contents
    return tuple(files.get(name) for name in names)


def valid_receipt(now: Snapshot, name: str, digest: str, checks: Checks) -> Receipt | None:
    files = now.contents
    receipt = files.get(name)
    return receipt if counts(receipt, digest, files, checks) else None


def sized_parts(
    now: Snapshot, names: tuple[str, ...], contents: tuple[Any, ...] | None, checks: Checks
) -> tuple[tuple[tuple[int, Receipt], ...], tuple[str, ...]]:
    """The receipts that count, by shard, and the names of the others that are there; `contents`
    where they were read before.
    """
    files = now.contents
    contents = contents or contents_of(now, names)
    valid, broken = [], []
    for name, receipt in zip(names, contents, strict=True):
        shard, digest = name.rpartition("/")[2].split("-", 1)
        if counts(receipt, digest, files, checks):
            valid.append((int(shard), receipt))
        elif receipt is not None:
            broken.append(name)
    return tuple(valid), tuple(broken)


def manifest_of(now: Snapshot, name: str, checks: Checks) -> tuple[Receipt, ...] | None:
    """`StageFolder.manifest`: a manifest whose parts are all there at their size."""
    files = now.contents
    manifest = files.get(name)
    if not isinstance(manifest, tuple):
        return None
    is_whole = all(counts(receipt, receipt.digest, files, checks) for receipt in manifest)
    return manifest if is_whole else None


def rows_of(now: Snapshot, sealed: tuple[Receipt, ...]) -> tuple[Any, ...] | None:
    """The contents of sealed parts, checked by SHA-256; None where one differs."""
    files = now.contents
    rows = tuple(files.get(receipt.part) for receipt in sealed)
    return rows if rows == tuple(receipt.content for receipt in sealed) else None


def hidden_names(now: Snapshot, by_age: bool) -> tuple[str, ...]:
    """Hidden files: where `by_age`, of writers that ended."""
    hidden = [(n, writer) for n, writer in now.contents.items() if n.endswith(".tmp")]
    return tuple(sorted(n for n, writer in hidden if not (by_age and writer in now.alive)))


def names_below(now: Snapshot, folder: str) -> tuple[str, ...]:
    """The parts of a folder."""
    return tuple(sorted(n for n in now.contents if n.startswith(f"{folder}part-")))


def other_parts(now: Snapshot, shards: int) -> tuple[str, ...]:
    """Files that look like parts, and are none of this plan's."""
    own = set(map(run_part, range(shards)))
    return tuple(name for name in names_below(now, "runs/mono.parquet/") if name not in own)


def old_names(now: Snapshot, prefix: str, age: int) -> tuple[str, ...]:
    return tuple(
        sorted(n for n, its_age in now.ages.items() if n.startswith(prefix) and its_age >= age)
    )


def topics_without_plan(now: Snapshot, topics: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(n for n in topics if n.replace("topics-", "plan-") not in now.contents)


def old_in_stage(now: Snapshot, stage: str, age: int) -> tuple[tuple[str, ...], bool]:
    """The old parts and receipts of a stage, and whether all its files are old."""
    ages = {name: its for name, its in now.ages.items() if name.startswith(f"{stage}/")}
    return tuple(sorted(n for n, its in ages.items() if its >= age)), min(
        ages.values(), default=age
    ) >= age


def kept_in_stage(now: Snapshot, stage: str, plan: str, is_idle: bool) -> frozenset[str]:
    """`beamrank.commit.check._named`: the receipts of manifests and of the current plan, or all
    where a file is young, with the parts that they name.
    """
    files, kept = now.contents, set[str]()
    for name, content in files.items():
        if name.startswith(f"{stage}/manifest-"):
            for one in content:
                kept |= {one.part, receipt_name(stage, one.shard, one.digest)}
        elif name.startswith(f"{stage}/receipts/") and (not is_idle or name.endswith(f"-{plan}")):
            kept |= {name, content.part} if isinstance(content, Receipt) else {name}
    return frozenset(kept)

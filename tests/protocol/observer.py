"""Checks the invariants at each change of an output's files that others see."""

import json
import re
from collections.abc import Mapping
from typing import Any

from beamrank.commit.asked import KeptAnswer
from beamrank.commit.listing import ANSWER, MANIFEST, PART, RECEIPT
from beamrank.commit.receipts import Manifest, Receipt
from beamrank.storage.documents import sha256
from tests.protocol.invariants import INVARIANTS
from tests.protocol.local_world import Change, LocalWorld

_PATH = re.compile(r"(?P<stage>[^/]+)/(?:(?P<folder>receipts)/)?(?P<base>[^/]+)")


class Broken(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        assert invariant in INVARIANTS
        super().__init__(f"[{invariant}] {INVARIANTS[invariant]} But {what}")
        self.invariant = invariant


class Observer:
    """What is committed in an output, and what may not change any more.

    Attributes:
        problems: the invariants that were broken, in order.
        counted: the receipts that counted, by path.
        seals: the manifests, by path.
        answers: the kept answers, by path.
        written: the label of the current plan once a launcher of it has written its runs.
    """

    def __init__(self, world: LocalWorld, output: str) -> None:
        self.world, self.output = world, output
        self.problems: list[Broken] = []
        self.counted: dict[str, Receipt] = {}
        self.seals: dict[str, Manifest] = {}
        self.answers: dict[str, Any] = {}
        self.written: str | None = None
        world.watch = self.see

    def broken(self, invariant: str, what: str) -> None:
        current = self.world.scheduler.current
        who = "a late put" if current is None else current.name
        self.problems.append(Broken(invariant, f"{what} (by {who})"))
        self.world.scheduler.trace.append(
            (self.world.scheduler.steps, who, f"-> {self.problems[-1]}")
        )

    def _content(self, path: str) -> bytes | None:
        return self.world.content(f"{self.output}/{path}")

    def see(self, change: Change) -> None:
        """A change of a name."""
        if not change.path.startswith(f"{self.output}/") or change.before == change.after:
            return
        path = change.path.removeprefix(f"{self.output}/")
        if path == "current-plan.json":
            self.written = None
        match = _PATH.fullmatch(path)
        if match is None:
            if path.startswith("runs/"):
                self._see_run(path)
            return
        stage, folder, base = match["stage"], match["folder"], match["base"]
        if base.startswith("."):
            return
        if stage == "runs":
            self._see_run(path)
        elif stage == "asked" and re.fullmatch(ANSWER.pattern, base):
            self._see_answer(path, change)
        elif folder and re.fullmatch(RECEIPT.pattern, base):
            self._see_receipt(path, stage, change)
        elif re.fullmatch(PART.pattern, base):
            self._see_part(path, stage, change)
        elif re.fullmatch(MANIFEST.pattern, base):
            self._see_manifest(path, stage, change)

    @property
    def _is_gc(self) -> bool:
        current = self.world.scheduler.current
        return current is not None and current.name.startswith("gc")

    def is_whole(self, stage: str, receipt: Receipt) -> bool:
        content = self._content(f"{stage}/{receipt.part}")
        return content is not None and sha256(content) == receipt.part_sha256

    def _see_receipt(self, path: str, stage: str, change: Change) -> None:
        after = None if change.after is None else Receipt.from_json(change.after)
        before = self.counted.get(path)
        if after is not None:
            if not self.is_whole(stage, after):
                self.broken("part-whole", f"{path} names {after.part}, which is not there")
            elif before is not None and before.part != after.part:
                self.broken("one-counts", f"{path} named {before.part}, and now {after.part}")
            else:
                self.counted[path] = after
        elif before is not None and self.is_whole(stage, before):
            sealed = [one for one in self._sealed(stage) if one.digest == before.digest]
            if self._is_gc and (sealed or self.needs(path)):
                self.broken("needed-stays", f"{path} is gone")
            elif not self._is_gc:
                self.broken("done-is-done", f"{path} is gone, which counted")
            else:
                del self.counted[path]
        elif before is not None:
            del self.counted[path]

    def needs(self, path: str) -> bool:
        """Whether a plan that runs, or the current one, needs a receipt."""
        return path in self.needed

    needed: frozenset[str] = frozenset()

    def _sealed(self, stage: str) -> list[Receipt]:
        return [
            receipt
            for path, manifest in self.seals.items()
            if path.startswith(f"{stage}/")
            for receipt in manifest.receipts
        ]

    def _see_part(self, path: str, stage: str, change: Change) -> None:
        base = path.rpartition("/")[2]
        sealed = [one for one in self._sealed(stage) if one.part == base]
        named = [
            one
            for name, one in self.counted.items()
            if name.startswith(f"{stage}/") and one.part == base
        ]
        whole = change.after is not None
        for receipt in (*sealed, *named):
            if not whole or sha256(change.after or b"") != receipt.part_sha256:
                kind = "sealed-stays" if sealed else "part-whole"
                if self._is_gc:
                    kind = "needed-stays"
                self.broken(kind, f"{path} is {'changed' if whole else 'gone'}")
                return

    def _see_manifest(self, path: str, stage: str, change: Change) -> None:
        after = None if change.after is None else Manifest.from_json(change.after)
        before = self.seals.get(path)
        kept = [] if before is None else [one.part for one in before.receipts]
        is_same = after is not None and [one.part for one in after.receipts] == kept
        if (
            before is not None
            and not is_same
            and all(self.is_whole(stage, one) for one in before.receipts)
        ):
            self.broken("sealed-stays", f"{path} is {'gone' if after is None else 'changed'}")
        if after is not None:
            self.seals[path] = after
            for receipt in after.receipts:
                if not self.is_whole(stage, receipt):
                    self.broken("part-whole", f"{path} names {receipt.part}, which is not there")

    def _see_answer(self, path: str, change: Change) -> None:
        kept = None if change.after is None else KeptAnswer.from_json(change.after)
        if kept is None:
            if not self._is_gc and path in self.answers:
                self.broken("one-answer", f"{path} is gone")
            self.answers.pop(path, None)
            return
        first = self.answers.setdefault(path, kept.answer)
        if first != kept.answer:
            self.broken("one-answer", f"{path} was {first}, and is {kept.answer}")

    # Runs.

    def _see_run(self, path: str) -> None:
        names = path.split("/")[1:]
        if names[-1].startswith("."):
            return
        if len(names) == 1:
            content = self._content(path)
            if content is not None and not names[0].endswith((".yaml", ".json")):
                self._check_label(path, {self._label(content)})
            return
        folder = f"{self.output}/runs/{names[0]}"
        listed = self.listed(folder)
        if "_SUCCESS" in listed:
            parts = listed.keys() - {"_SUCCESS"}
            expected = {f"part-{shard:05d}.trec" for shard in range(self.shards)}
            if parts != expected:
                self.broken("one-plan", f"{folder} has {sorted(parts)} beside _SUCCESS")
            else:
                self._check_label(folder, {self._label(listed[name]) for name in parts})

    shards = 0

    def listed(self, folder: str) -> Mapping[str, bytes]:
        objects = getattr(self.world, "objects", None)
        if objects is not None:
            inside = {
                name.removeprefix(f"{folder}/"): one.content
                for name, one in objects.items()
                if name.startswith(f"{folder}/")
            }
        else:
            node = self.world.find(folder)
            inside = {name: one.content for name, one in getattr(node, "names", {}).items()}
        return {name: content for name, content in inside.items() if not name.startswith(".")}

    @staticmethod
    def _label(content: bytes) -> str:
        tags = {line.rpartition(b" ")[2] for line in content.splitlines()}
        return b"+".join(sorted(tags)).decode()

    def _check_label(self, path: str, labels: set[str]) -> None:
        label = "+".join(sorted(labels))
        if len(labels) != 1 or "+" in label or not label:
            self.broken("one-plan", f"{path} is of the plans {label}")
        elif self.written is not None and label != self.written:
            self.broken("one-plan", f"{path} is of {label}, and {self.written} is current")

    def paths(self, pattern: str) -> list[str]:
        """The files of the output whose paths below it match."""
        objects = getattr(self.world, "objects", None)
        names = (
            [f"{folder}/{name}" for folder, one in self.world.folders.items() for name in one.names]
            if objects is None
            else list(objects)
        )
        paths = [name.removeprefix(f"{self.output}/") for name in names]
        return [path for path in paths if re.fullmatch(pattern, path)]

    def pointed(self) -> Any:
        """The plan that the pointer names."""
        content = self._content("current-plan.json")
        try:
            return None if content is None else json.loads(content)["plan"]
        except ValueError:
            return None

    def has_runs(self, in_parts: bool) -> bool:
        """Whether the run of the last stage is there."""
        if not in_parts:
            return self._content("runs/asking.trec") is not None
        return "_SUCCESS" in self.listed(f"{self.output}/runs/asking.trec")

    def run(self, in_parts: bool) -> bytes | None:
        """The run of the last stage."""
        if not in_parts:
            return self._content("runs/asking.trec")
        return b"".join(
            one for _, one in sorted(self.listed(f"{self.output}/runs/asking.trec").items())
        )

    def recheck(self) -> None:
        """After a power failure: what is there now is what counts."""
        paths = list(self.counted)
        self.counted.clear()
        self.seals.clear()
        self.answers.clear()
        self.written = None
        for path in paths:
            content = self._content(path)
            receipt = None if content is None else Receipt.from_json(content)
            if receipt is not None:
                stage = path.partition("/")[0]
                if not self.is_whole(stage, receipt):
                    self.broken("part-whole", f"{path} names {receipt.part}, lost with the power")
                self.counted[path] = receipt

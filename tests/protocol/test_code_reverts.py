"""Each protection of the commit protocol is needed: without it, a short schedule of the code breaks
an invariant; with it, the same schedule does not.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from beamrank.commit import check, listing, owner, receipts
from beamrank.commit.asked import KeptAnswers
from beamrank.commit.receipts import StageFolder
from beamrank.storage import documents, local_files
from beamrank.storage import files as storage
from beamrank.system import system
from pipelines.runs import run_files
from pipelines.runs.run_file import SUCCESS, PartFolder
from tests.protocol import programs
from tests.protocol.local_world import LocalWorld
from tests.protocol.schedules import When
from tests.protocol.simulation import Member, Scenario, simulate

_TWO = Scenario((Member("launch"), Member("launch", machine="m2")), differ=True)
_PLANS = Scenario((Member("launch"), Member("launch", "B", "m2")), differ=True)
_PARTS = replace(_PLANS, in_parts=True, before=(("A", 0),), members=(Member("launch", "B"),) * 2)
_RACE = (When("launch0", r"create .*retrieve/receipts/\.00000-", "to", "launch1"),)
_FIRST_SHARD = r"/retrieve/receipts/00000-"


class Revert(NamedTuple):
    """A protection that is taken out.

    Attributes:
        invariant: what breaks then.
        scenario: what runs.
        script: the schedule.
        take_out: takes it out.
    """

    invariant: str
    scenario: Scenario
    script: tuple[When, ...]
    take_out: Callable[[pytest.MonkeyPatch], None]


def _create_only(patches: pytest.MonkeyPatch) -> None:
    def publish(url: str, content: bytes) -> bool:
        storage.replace(url, content)
        return True

    patches.setattr(storage, "publish", publish)


def _receipt_after_part(patches: pytest.MonkeyPatch) -> None:
    publish_content, publish_once = storage.publish_content, receipts.publish_once
    parts: list[tuple[str, bytes]] = []

    def publish_later(url: str, content: bytes) -> None:
        if "/part-" in url:
            parts.append((url, content))
        else:
            publish_content(url, content)

    def publish_first(*arguments: Any) -> Any:
        published = publish_once(*arguments)
        while parts:
            publish_content(*parts.pop())
        return published

    patches.setattr(storage, "publish_content", publish_later)
    patches.setattr(receipts, "publish_once", publish_first)


def _digest_in_name(kind: listing.Kind) -> Callable[[pytest.MonkeyPatch], None]:
    def take_out(patches: pytest.MonkeyPatch) -> None:
        name = listing.Kind.name

        def without(self: listing.Kind, full_digest: str, number: int = 0) -> str:
            return name(self, "0" * 12 if self is kind else full_digest, number)

        patches.setattr(listing.Kind, "name", without)

    return take_out


def _size_check(patches: pytest.MonkeyPatch) -> None:
    why = receipts.why_broken

    def without(receipt: Any, shard_digest: str, sizes: Mapping[str, int]) -> str | None:
        same = {} if receipt is None else dict.fromkeys(sizes, receipt.part_bytes)
        return why(receipt, shard_digest, same)

    patches.setattr(receipts, "why_broken", without)


def _check_inside(patches: pytest.MonkeyPatch) -> None:
    def unchecked(content: bytes) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(content)
        values.pop("check", None)
        return values

    patches.setattr(documents, "checked_values", unchecked)


def _first_wins(patches: pytest.MonkeyPatch) -> None:
    def publish_last(url: str, document: Any, _: object) -> Any:
        if not storage.publish(url, document.to_json()):
            storage.replace(url, document.to_json())
        return document

    patches.setattr(receipts, "publish_once", publish_last)


def _manifest_last(patches: pytest.MonkeyPatch) -> None:
    def seal_unseen(folder: StageFolder, stage: str, digests: tuple[str, ...]) -> Any:
        names = [listing.RECEIPT.name(one, shard) for shard, one in enumerate(digests)]
        contents = storage.read_files(storage.join(folder.url, listing.RECEIPTS), names)
        read = [receipts.Receipt.from_json(content) for content in contents.values()]
        if len(read) < len(digests):
            return None
        return receipts.Manifest(stage, documents.digest(digests), tuple(filter(None, read)))

    patches.setattr(StageFolder, "_of_receipts", seal_unseen)


def _mark_first(patches: pytest.MonkeyPatch) -> None:
    remove = storage.remove
    patches.setattr(storage, "remove", lambda url: SUCCESS in url or remove(url))


def _mark_last(patches: pytest.MonkeyPatch) -> None:
    begin = PartFolder.begin

    def marked(folder: PartFolder) -> None:
        begin(folder)
        storage.replace(storage.join(folder.url, SUCCESS), b"")

    patches.setattr(PartFolder, "begin", marked)


def _parts_stay(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(PartFolder, "begin", PartFolder.remove)


def _current_plan(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(run_files, "check_current", lambda plan: None)


def _least_age(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(programs, "DAY_SECONDS", 0.0)


def _gc_alone(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(owner, "_refuse_others", lambda *_: None)


def _gc_clock(patches: pytest.MonkeyPatch) -> None:
    find = check.find_garbage
    patches.setattr(check, "find_garbage", lambda output, _, age: find(output, system.time(), age))


def _sweeps_by_age(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(local_files, "_ABANDONED_SECONDS", -1.0)


def _lock(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(LocalWorld, "flock", lambda *_: None)


def _loser_uses_published(patches: pytest.MonkeyPatch) -> None:
    keep = KeptAnswers.keep

    def keep_own(kept: KeptAnswers, url: str, answer: Any) -> tuple[Any, bool]:
        keep(kept, url, answer)
        return answer, True

    patches.setattr(KeptAnswers, "keep", keep_own)


def _told_before_exit(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(StageFolder, "leave_open", lambda *_: None)


def _fsync(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(LocalWorld, "fsync", lambda *_: None)


def _second_syncs(patches: pytest.MonkeyPatch) -> None:
    def publish(path: str, content: bytes) -> bool:
        with local_files._written_beside(path, [content]) as temporary:
            is_new = local_files._move_to_new(temporary, path)
            if is_new:
                local_files._sync_folder(path)
            return is_new

    patches.setattr(local_files, "publish_file", publish)


def _other_sha(content: bytes) -> bytes:
    values = json.loads(content)
    values["part_sha256"] = "0" * 64
    return json.dumps(values).encode()


_HALF = replace(_TWO, before=(("A", 110),), members=())
_REVERTS = {
    "create-only": Revert("one-counts", _TWO, _RACE, _create_only),
    "receipt after part": Revert("part-whole", _TWO, (), _receipt_after_part),
    "digest in the name of a receipt": Revert(
        "one-counts", _PLANS, (), _digest_in_name(listing.RECEIPT)
    ),
    "digest in the name of a part": Revert(
        "sealed-stays",
        _TWO,
        (When("launch0", r"create .*retrieve/\.part-00000", "to", "launch1"),),
        _digest_in_name(listing.PART),
    ),
    "size check": Revert(
        "done-is-done",
        replace(_HALF, damage=((r"/retrieve/part-00000", lambda content: content[:9]),)),
        (),
        _size_check,
    ),
    "check inside a receipt": Revert(
        "done-is-done", replace(_HALF, damage=((_FIRST_SHARD, _other_sha),)), (), _check_inside
    ),
    "first receipt wins": Revert("one-counts", _TWO, _RACE, _first_wins),
    "manifest last": Revert(
        "part-whole",
        replace(_TWO, before=(("A", 110),), damage=((r"/retrieve/part-00000", lambda _: None),)),
        (),
        _manifest_last,
    ),
    "_SUCCESS first": Revert("one-plan", _PARTS, (), _mark_first),
    "_SUCCESS last": Revert("one-plan", _PARTS, (), _mark_last),
    "parts of a run are replaced, not removed": Revert(
        "one-plan",
        replace(_TWO, in_parts=True),
        (
            When("launch0", r"create .*retrieve.trec/\._SUCCESS", "to", "launch1"),
            When("launch1", r"(unlink|create) .*retrieve.trec/\.?part-00001", "to", "launch0"),
        ),
        _parts_stay,
    ),
    "current plan before runs": Revert(
        "one-plan",
        _PLANS,
        (When("launch0", r"create .*asking/\.part-00000", "sleep", 700),),
        _current_plan,
    ),
    "gc's 24 hours": Revert(
        "needed-stays",
        Scenario((Member("launch"), Member("gc", "A", "m1")), by_worker=True),
        (
            When("worker0 of launch0", r"create .*retrieve/receipts/\.00000-", "kill", "launch0"),
            When("worker0 of launch0", "", "to", "gc1"),
            When("gc1", r"unlink .*/part-00000", "to", "worker0 of launch0"),
        ),
        _least_age,
    ),
    "gc without launchers": Revert(
        "needed-stays",
        Scenario(
            (Member("launch", "B"), Member("gc", "A", "m2")),
            before=(("B", 110), ("A", 0)),
            differ=True,
        ),
        (
            When("launch0", "create", "to", "gc1"),
            When("gc1", "unlink .*/retrieve/receipts/", "to", "launch0"),
        ),
        _gc_alone,
    ),
    "ages by the clock of the storage": Revert(
        "needed-stays",
        Scenario(
            (Member("launch"), Member("gc", "A", "m2")),
            by_worker=True,
            offsets=(("m2", 25 * 3600.0),),
        ),
        (
            When("worker0 of launch0", r"create .*retrieve/receipts/\.00000-", "kill", "launch0"),
            When("worker0 of launch0", "", "sleep", 700),
            When("gc1", r"unlink .*/part-00000", "to", "worker0 of launch0"),
        ),
        _gc_clock,
    ),
    "sweeps by age": Revert(
        "ends",
        _TWO,
        (
            When("launch0", r"link .*retrieve/receipts/00000-", "to", "launch1"),
            When("launch1", r"create .*retrieve/\.part-00000", "to", "launch0"),
        ),
        _sweeps_by_age,
    ),
    "the owner's lock": Revert(
        "one-plan",
        replace(_PLANS, members=(Member("launch"), Member("launch", "B")), at_store=True),
        (When("launch0", r"put .*runs/asking.trec$", "to", "launch1"),),
        _lock,
    ),
    "the loser uses the published answer": Revert(
        "one-answer",
        _TWO,
        (When("launch0", r"create .*asked/", "to", "launch1"),),
        _loser_uses_published,
    ),
    "an open shard's file before the exit": Revert(
        "open-told", Scenario((Member("launch"),), down=1), (), _told_before_exit
    ),
    "fsync": Revert(
        "part-whole",
        Scenario((Member("launch"),)),
        (When("launch0", r"create .*asking/\.part-00000", "power", 4),),
        _fsync,
    ),
    "the second writer of a part syncs its name": Revert(
        "part-whole",
        Scenario((Member("launch"), Member("launch"))),
        (
            When("launch0", r"open /out/retrieve$", "to", "launch1"),
            When("launch1", r"unlink .*/retrieve/receipts/\.00000", "power"),
        ),
        _second_syncs,
    ),
}


@pytest.mark.parametrize("name", _REVERTS)
def test_without_a_protection_its_invariant_breaks(name, monkeypatch):
    revert = _REVERTS[name]
    usual = simulate(revert.scenario, revert.script)
    assert usual.broken == [], str(usual)
    with monkeypatch.context() as patches:
        revert.take_out(patches)
        outcome = simulate(revert.scenario, revert.script)
    assert revert.invariant in outcome.broken, str(outcome)

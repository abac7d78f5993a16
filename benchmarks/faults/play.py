"""Plays a case: launches with faults, then launches until the run is done, then what must hold."""

import json
import re
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.faults.cases import (
    BETWEEN,
    DAMAGES,
    DURING,
    FINISHED,
    LAUNCHER,
    SIGNALS,
    Case,
    Fault,
)
from benchmarks.faults.damage import damage, must_be_found, remedied
from benchmarks.faults.disturbed import PATIENCE_SECONDS, DisturbedRun
from benchmarks.faults.launches import Ended, processes_of
from benchmarks.faults.weather import Stores
from benchmarks.faults.worlds import Content, Worlds, read_runs

_END_SECONDS = 30.0
_MOST_RESUMES = 8
# What a process writes that ended in a way that it did not foresee.
_TRACES = ("Traceback (most recent call last)", "Fatal Python error", "Segmentation fault")
_OF_INDEX = re.compile(r"(?i)remove the folder|(build it|build the index) again")
_OF_PLAN = "run it once without --only"
_LIMITED = ("a memory limit", "a limit of open files")


class BrokenRuleError(Exception):
    """What must hold after a fault does not."""


@dataclass
class Outcome:
    """What became of a case.

    Attributes:
        struck: for each fault, whether it found what it strikes.
        codes: the exit codes of its launches.
        broken: the rule that does not hold; empty where all do.
    """

    struck: list[bool]
    codes: list[int] = field(default_factory=list)
    broken: str = ""
    seconds: float = 0.0


def play(case: Case, worlds: Worlds, stores: Stores, folder: Path) -> Outcome:
    """Plays a case in a new folder, which stays where a rule is broken."""
    start, outcome = time.monotonic(), Outcome([False] * len(case.faults))
    shutil.rmtree(folder, ignore_errors=True)
    player = _Player(case, worlds, stores, folder)
    player.outcome = outcome
    try:
        with player.held, player.undo:
            player.play()
    except BrokenRuleError as error:
        outcome.broken = str(error)
    for process in processes_of(player.token):
        process.kill()
    outcome.seconds = round(time.monotonic() - start, 1)
    if not outcome.broken:
        shutil.rmtree(folder)
    return outcome


class _Player(DisturbedRun):
    """A run with its faults, and the rules."""

    outcome: Outcome

    def play(self) -> None:
        """Raises BrokenRuleError where something does not hold."""
        expected = self.worlds.undisturbed(self.case.setup.world, "")
        struck, faults = self.outcome.struck, list(enumerate(self.case.faults))
        finished = [pair for pair in faults if pair[1].kind.endswith(FINISHED)]
        for at, fault in faults:
            if (at, fault) not in finished:
                struck[at] = self._disturb(fault)
        self._resume()
        self._check_nothing_is_left()
        for at, fault in finished:
            struck[at] = self._damage_finished(fault)
            self._resume()
        self._command("gc", self.url, "--yes", "--min-age-hours", "0")
        findings = self._verify()
        if findings["findings"] or findings["stray"]:
            raise BrokenRuleError(
                f"after gc, verify finds {findings['findings'] or findings['stray']}"
            )
        self._check_runs("after gc", [expected])
        self._check_nothing_is_left()

    def _disturb(self, fault: Fault) -> bool:
        """One launch with a fault, or a change after one that is killed; returns whether it
        struck.
        """
        if fault.kind.endswith(BETWEEN):
            self._launch(fault._replace(kind=f"{SIGNALS[0]} of {LAUNCHER}"))
        return self._launch(fault)[1]

    def _launch(self, fault: Fault | None = None) -> tuple[bool, bool]:
        """A launch, and what must hold after it; returns whether the run is done, and whether the
        fault struck.
        """
        ended, struck = self.launch(fault)
        self.said = "".join(launch.stderr for launch in ended)
        # Where unlink fails, Python's tempfile itself leaves a file.
        self.killed |= fault is not None and fault.kind in (*_LIMITED, "a system call that fails")
        for launch in ended:
            self._check_ended(launch, fault)
        done = all(launch.code == 0 for launch in ended[: len(self.own)])
        # What was written may be damaged afterwards: `verify` finds that.
        damaged = fault is not None and fault.kind in [f"{kind} {DURING}" for kind in DAMAGES]
        if done and not self.others and not damaged:
            worlds = ("", *self.changed)
            allowed = [
                self.worlds.undisturbed(self.case.setup.world, changed) for changed in worlds
            ]
            self._check_runs("a launcher ended with 0, and", allowed)
        self.done = done and not self.others and not self.changed
        return self.done, struck

    def _resume(self) -> None:
        """Launches without faults until the run is done, and follows the advice of `verify`."""
        # Nothing may have read what was damaged: a run ends with 0, and `verify` finds it.
        damaged = any(
            fault.kind.endswith((BETWEEN, DURING, FINISHED)) for fault in self.case.faults
        )
        for _ in range(_MOST_RESUMES):
            done = self._launch()[0]
            if done and not damaged:
                return
            findings = self._verify()
            if done and not findings["findings"]:
                return
            self._follow(findings, "" if done else self.said)
        raise BrokenRuleError(
            f"after {_MOST_RESUMES} launches the run still ends with {self.outcome.codes[-2]}"
        )

    def _damage_finished(self, fault: Fault) -> bool:
        """Damages files of the finished output; `verify` must find that."""
        self._command("gc", self.url, "--yes", "--min-age-hours", "0")
        kind = fault.kind.removesuffix(FINISHED).strip()
        damaged = {
            name for name in damage(self.files, kind, fault.drawn) if must_be_found(name, kind)
        }
        findings = self._verify()
        said = " ".join(
            f"{finding['file']} {finding['problem']}" for finding in findings["findings"]
        )
        of_plan = any(name.startswith(("plan-", "current-plan")) for name in damaged)
        missed = sorted(name for name in damaged if name.rpartition("/")[2] not in said)
        if missed and not (of_plan and findings["code"]):
            raise BrokenRuleError(f"verify does not find {kind}: {', '.join(missed)}")
        self._follow(findings)
        return bool(damaged)

    def _follow(self, findings: Mapping[str, Any], said: str = "") -> None:
        """Does what `verify` and a failed launch ask for."""
        advice = " ".join([said, *(finding["remedy"] for finding in findings["findings"])])
        if self.indexes[0].files() and _OF_INDEX.search(advice):
            self.indexes[0].remove()
        if _OF_PLAN in advice:
            self._command(*self.words(), "--stage", "retrieve")
        for name in set(remedied(findings["findings"])) & set(self.files.files()):
            self.files.write(name, None)

    def _verify(self) -> Mapping[str, Any]:
        ended = self._command("verify", self.url, "--json", codes=(0, 1, 3))
        findings = (
            json.loads(ended.stdout) if ended.stdout.strip() else {"findings": [], "stray": 0}
        )
        return {**findings, "code": ended.code}

    def _command(self, *words: str, codes: Collection[int] = (0,)) -> Ended:
        """Runs another command to its end."""
        ended = self.command(list(words)).end(PATIENCE_SECONDS)
        self._check_ended(ended)
        if ended.code not in codes:
            raise BrokenRuleError(f"{words[0]} ended with {ended.code}: {ended.stderr[-1500:]}")
        return ended

    def _check_ended(self, ended: Ended, fault: Fault | None = None) -> None:
        """A launcher ends, with 0 or an error that it explains."""
        self.outcome.codes.append(ended.code)
        with (self.folder / "said.txt").open("a") as said:
            said.write(
                f"$ beamrank {' '.join(ended.arguments)}\n{ended.stderr}exit code {ended.code}, "
                f"{fault}\n"
            )
        name, tail = ended.arguments[0], ended.stderr[-2500:]
        if ended.hung:
            raise BrokenRuleError(f"{name} did not end in {PATIENCE_SECONDS:g} seconds")
        if trace := next((trace for trace in _TRACES if trace in ended.stderr), None):
            raise BrokenRuleError(f"{name} printed {trace!r}: {tail}")
        # Before it handles signals, or in C code that has no memory.
        may_die = fault is not None and (fault.kind.startswith("SIG") or fault.kind in _LIMITED)
        if ended.code < 0 and not may_die:
            raise BrokenRuleError(f"{name} was killed by signal {-ended.code}: {tail}")
        explained = "error: " in ended.stderr or "interrupted: " in ended.stderr or ended.stdout
        if ended.code > 0 and not explained:
            raise BrokenRuleError(f"{name} ended with {ended.code} without an error: {tail!r}")

    def _check_runs(self, when: str, allowed: Sequence[Content]) -> None:
        runs, expected = read_runs(self.url), allowed[0]
        if runs not in allowed:
            names = sorted({*runs, *expected})
            wrong = [name for name in names if runs.get(name) != expected.get(name)]
            raise BrokenRuleError(
                f"{when} its runs are not an undisturbed run's: {', '.join(wrong)}"
            )

    def _check_nothing_is_left(self) -> None:
        """No process, no temporary file and no launcher's entry."""
        alive = psutil.wait_procs(processes_of(self.token), timeout=_END_SECONDS)[1]
        if alive:
            raise BrokenRuleError(
                f"processes are left: {[one.cmdline() for one in alive if one.is_running()]}"
            )
        left = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*.tmp")]
        left += [name for name in self.files.files() if name.endswith(".tmp")]
        left += [path.name for path in (self.folder / "cache").rglob(".fetching-*")]
        left += [f"tmp/{path.name}" for path in (self.folder / "tmp").iterdir() if not self.killed]
        if left:
            raise BrokenRuleError(f"temporary files are left: {', '.join(left)}")
        if any(name.startswith("launcher-") for name in self.files.files()):
            raise BrokenRuleError("the output still has the entry of a launcher")

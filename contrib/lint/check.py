"""What a check is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from contrib.lint.run_rows import Line
from contrib.lint.state import RunState
from contrib.lint.topic_rows import TopicRows

Severity = Literal["error", "warning"]
# The line and the message of each finding.
Found: TypeAlias = Iterator[tuple[int, str]]
LineCheck: TypeAlias = Callable[[Line, RunState], str | None]
TopicCheck: TypeAlias = Callable[[TopicRows, RunState], Found]
RunCheck: TypeAlias = Callable[[RunState], Found]

Function = TypeVar("Function", LineCheck, TopicCheck, RunCheck)


@dataclass(frozen=True)
class Check(Generic[Function]):
    """A check.

    Attributes:
        function: finds what is wrong with a line, with a topic, or, at the end, with the whole run.
        severity: `error` if tools refuse or misread such a run, `warning` if the run may not be what was intended.
        summary: what it finds, for the table of the documentation.
        fix: what `--fix` does; empty if there is no single right answer.
        blocks_fix: whether a file with such a finding is left as it is: a row could be lost.
        needs_scores: whether only runs with scores can be fixed.
    """

    function: Function
    severity: Severity
    summary: str
    fix: str = ""
    blocks_fix: bool = False
    needs_scores: bool = False

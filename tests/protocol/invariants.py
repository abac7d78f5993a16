"""What the commit protocol promises, by short names. The model and the schedules of the code check
the same; docs/internals/commit-protocol.md names them in brackets.
"""

from collections.abc import Mapping

INVARIANTS: Mapping[str, str] = {
    "part-whole": "The part of a receipt is there and whole.",
    "sealed-stays": "The parts of a sealed stage never change or go.",
    "one-counts": "Of the attempts at a shard, at most one counts.",
    "one-plan": "A run is of one plan, the current one once a launcher of that has written it.",
    "needed-stays": "gc and sweeps remove nothing that a plan or an unfinished run needs.",
    "done-is-done": "What status, or `_SUCCESS`, calls done is done.",
    "one-answer": "Of the answers to a question, at most one counts.",
    "open-told": "A shard that was left open says why before its process ends.",
    "ends": "From every state, one launcher that runs alone ends with the right bytes.",
}

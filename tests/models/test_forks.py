import subprocess
import sys

import pytest

from tests.support.checkpoints import LETTERS, save_tiny

# One after the other, in a process and in one that is forked from it.
_PROGRAM = """
import os, sys
from beamrank import BeamrankError, Reranker

reranker = Reranker(sys.argv[1])
before, after = sys.argv[2].split(" then ")
inputs = [("a b", f"{letter} c") for letter in "defghijklmnop"]
wanted = Reranker(sys.argv[1]).score(inputs) if before == "score" else None
if os.fork() == 0:
    try:
        found = (Reranker(sys.argv[1]) if after == "load" else reranker).score(inputs)
        print("scored", len(found), flush=True)
    except BeamrankError as error:
        print("refused" if "fork" in str(error) and "spawn" in str(error) else error, flush=True)
    os._exit(0)
os.wait()
print("parent", len(reranker.score(inputs)))
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("order", "child"),
    [("score then score", "refused"), ("load then load", "refused"), ("load then score", "scored 13")],
)
def test_forked_process_scores_or_says_why_not(tmp_path, order, child):
    command = [sys.executable, "-c", _PROGRAM, save_tiny(tmp_path, LETTERS), order]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.stdout.splitlines() == [child, "parent 13"], done.stderr

import subprocess
import sys

import pytest

from tests.support.checkpoints import LETTERS, save_tiny

# One process for all cases: it takes seconds to import torch.
_PROGRAM = """
import os, sys
from beamrank import BeamrankError, Reranker

def load():
    return Reranker(sys.argv[1])

def fork(case, use):
    if os.fork() == 0:
        try:
            use()
            print(case, "done", flush=True)
        except BeamrankError as error:
            is_refused = "fork" in str(error) and "spawn" in str(error)
            print(case, "refused" if is_refused else error, flush=True)
        os._exit(0)
    os.wait()

reranker = load()
inputs = [("a b", f"{letter} c") for letter in "defghijklmnop"]
fork("load, load", load)
fork("load, score", lambda: reranker.score(inputs))
print("parent", len(reranker.score(inputs)), flush=True)
fork("score, load", load)
fork("score, score", lambda: reranker.score(inputs))
print("parent", len(reranker.score(inputs)))
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_forked_process_scores_or_says_why_not(tmp_path):
    command = [sys.executable, "-c", _PROGRAM, save_tiny(tmp_path, LETTERS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.stdout.splitlines() == [
        "load, load refused",
        "load, score done",
        "parent 13",
        "score, load refused",
        "score, score refused",
        "parent 13",
    ], done.stderr

"""Every reader on changed inputs: what it takes it takes whole, what it does not take it refuses with a message."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.storage import digested
from benchmarks.fuzz.inputs import mutate, pick_from
from benchmarks.fuzz.targets import TARGETS
from benchmarks.fuzz.watch import attempt, prepare

# Each reads many files.
_SLOW = ("output", "tokenizer_config", "special_tokens")


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_changed_input_is_read_whole_or_refused(target, tmp_path, monkeypatch):
    # A file that was just written would be waited for.
    monkeypatch.setattr(digested, "_TICK_NANOSECONDS", 0)
    prepared = prepare(target, tmp_path / "files")
    assert all(attempt(prepared, seed) for seed in prepared.seeds)

    @settings(max_examples=20 if target.name.startswith(_SLOW) else 150, deadline=None, derandomize=True, database=None)
    @given(st.sampled_from(prepared.seeds), st.binary(min_size=96, max_size=96))
    def check(seed, drawn):
        attempt(prepared, mutate(seed, target.codec, pick_from(drawn)))

    check()

"""The progress of a plan in the text format of Prometheus, read from the plan and its receipts
alone: every machine gives the same at any time.
"""

import json
import re
from collections.abc import Iterator

from beamrank.commit.plan import Plan
from beamrank.commit.status import read_receipts, total_counts

_NAME = re.compile(r"[^a-z0-9_]")


def metrics(plan: Plan) -> str:
    """One sample a line: a gauge for each fact of a stage, with the label `stage`."""
    samples: dict[str, list[str]] = {}
    for stage, name, value in _facts(plan):
        name = f"beamrank_{_NAME.sub('_', name.lower())}"
        label = json.dumps(stage, ensure_ascii=False)
        samples.setdefault(name, []).append(f"{name}{{stage={label}}} {value}")
    # A gauge rather than a counter: a damaged part is removed and computed again.
    lines = [line for name in samples for line in (f"# TYPE {name} gauge", *samples[name])]
    return "".join(f"{line}\n" for line in lines)


def _facts(plan: Plan) -> Iterator[tuple[str, str, float]]:
    for stage, by_shard in read_receipts(plan).items():
        receipts = by_shard.values()
        yield stage, "shards", len(plan.shards)
        yield stage, "done_shards", len(receipts)
        yield stage, "bad_rows", sum(receipt.bad_rows for receipt in receipts)
        yield stage, "worker_seconds", round(sum(receipt.seconds for receipt in receipts), 3)
        last = max((receipt.committed_seconds for receipt in receipts), default=0)
        yield stage, "last_commit_timestamp_seconds", last
        for name, count in sorted(total_counts(receipts).items()):
            yield stage, name, count

"""The scores of `beamrank score` as a table: copies of the sealed parts, for readers that know nothing of plans."""

from concurrent.futures import ThreadPoolExecutor

from beamrank.commit.check import Finding, Verification
from beamrank.commit.listing import RUNS
from beamrank.commit.part_folder import PartFolder
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.storage import files as storage
from pipelines.runs.owner import check_current

_BASE = "scores.parquet"
_FILES_AT_ONCE = 8


def write_scores(plan: Plan, manifest: Manifest) -> str:
    """Writes the table, a part for each shard, in the order of the pairs; returns the URL of its folder."""
    parts, table = plan.folder(manifest.stage), _folder(plan)

    def copy(receipt: Receipt) -> None:
        table.write(receipt.shard, parts.part_content(receipt))

    check_current(plan)
    table.begin()
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        list(pool.map(copy, manifest.receipts))
    check_current(plan)
    table.seal()
    return table.url


def verify_scores(plan: Plan, found: Verification) -> None:
    """Adds the findings about the table."""
    manifest = next(iter(plan.manifests(StageFolder.stated).values()), None)
    table = _folder(plan)
    sizes = storage.sizes_bytes(table.url)
    if manifest is None or not sizes:
        found.notes.append(f"not checked: {RUNS}/{_BASE}, which is not written yet: run again")
        return
    problems = table.problems()
    for receipt in manifest.receipts:
        name = table.part(receipt.shard)
        if name in sizes and storage.sha256(storage.join(table.url, name)) != receipt.part_sha256:
            problems.append((name, "is not the sealed part"))
    found.findings += [
        Finding(f"{RUNS}/{_BASE}/{name}", why, "run again, which writes it again") for name, why in problems
    ]
    found.files += len(sizes)
    found.bytes += sum(sizes.values())


def _folder(plan: Plan) -> PartFolder:
    return PartFolder(storage.join(plan.output, RUNS, _BASE), "parquet", len(plan.shards))

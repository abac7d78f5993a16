"""The scores as one table, `runs/scores.parquet`, a folder of parts; and its check."""

from concurrent.futures import ThreadPoolExecutor

from beamrank.commit.check import Verification
from beamrank.commit.listing import RUNS, SCORES
from beamrank.commit.owner import check_current
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.storage import files as storage
from pipelines.runs.run_file import PartFolder
from pipelines.runs.verify_runs import verify_parts

_FILES_AT_ONCE = 8


def scores_folder(plan: Plan) -> PartFolder:
    """Their folder."""
    return PartFolder(storage.join(plan.output, RUNS, SCORES), "parquet", len(plan.shards))


def write_scores(plan: Plan, manifest: Manifest) -> str:
    """Copies the sealed parts, in the order of the pairs, for readers of tables; returns the URL of
    the folder.
    """
    parts, table = plan.folder(manifest.stage), scores_folder(plan)

    def copy(receipt: Receipt) -> None:
        table.write(receipt.shard, parts.part_content(receipt))

    check_current(plan)
    storage.own_folder(plan.output, RUNS)
    table.begin()
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        list(pool.map(copy, manifest.receipts))
    check_current(plan)
    table.seal()
    return table.url


def verify_scores(plan: Plan, verification: Verification) -> None:
    """Adds the findings about the table."""
    manifest = next(iter(plan.manifests(StageFolder.stated).values()), None)
    table = scores_folder(plan)
    if manifest is None or not storage.sizes_bytes(table.url):
        verification.notes.append(
            f"not checked: {RUNS}/{storage.name(table.url)}, which is not written yet: run again"
        )
        return
    expected = {receipt.shard: receipt.part_sha256 for receipt in manifest.receipts}
    verify_parts(table, expected, "run again, which writes it again", verification)

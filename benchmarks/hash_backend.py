"""A backend whose scores come from hashes, to measure everything but the model."""

# ruff: noqa: ARG003

import shutil
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from beamrank.ranking.input_layout import Lengths, PaddedBatch
from models.checkpoints.checkpoint import Checkpoint
from models.scoring.backends.registry import Device
from models.scoring.packing import Rows, fill_batches

NAME = "hashes"
_TOKEN_BUDGET = 1 << 16
_TABLE = np.random.default_rng(20_261_125).integers(1 << 32, size=(1 << 16,), dtype=np.uint64)


class HashBackend:
    """Scores an input by a hash of its token ids, in their order."""

    digest_keys: ClassVar = {"table": "20261125"}
    streams = 1

    @classmethod
    def resolve(cls, device: str, dtype: str) -> Device:
        return Device("cpu", "float32", _TOKEN_BUDGET)

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        device: str,
        dtype: str,
        threads: int,
        kernel: str,
    ) -> Self:
        return cls()

    def start_thread(self) -> None:
        pass

    def batches(self, lengths: Lengths, token_budget: int) -> list[Rows]:
        return fill_batches(lengths.sum(axis=1), token_budget)

    def computed_tokens(self, lengths: Lengths) -> int:
        return int(lengths.sum())

    def forward(self, batch: PaddedBatch) -> npt.NDArray[np.float32]:
        hashed = _TABLE[batch.token_ids & (len(_TABLE) - 1)]
        places = np.arange(batch.token_ids.shape[1])
        weights = np.where(places < batch.lengths.reshape(-1, 1), 2 * places + 1, 0).astype(
            np.uint64
        )
        sums = (hashed * weights).sum(axis=1) % (1 << 32)
        return np.asarray(sums / (1 << 28) - 8, np.float32)


def install(folder: Path) -> None:
    """Writes this module and an entry point that names the backend to a folder, to be put on
    PYTHONPATH.
    """
    info = folder / "beamrank_hashes-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, folder / "beamrank_hashes.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: beamrank-hashes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[beamrank.backends]\n{NAME} = beamrank_hashes:{HashBackend.__name__}\n"
    )

"""The names of devices."""

import os
import re
from typing import Annotated

from pydantic import StringConstraints

DEVICE_PATTERN = r"auto|cpu|cuda(:\d{1,3})?"
DEVICE_NAMES = "auto, cpu, cuda, or cuda:N for one GPU of several"
DeviceName = Annotated[str, StringConstraints(pattern=f"^({DEVICE_PATTERN})$")]
WORKER_NUMBER = "BEAMRANK_WORKER_NUMBER"
"""The environment variable with the number of a worker process among those of its machine."""


def number_worker(worker_id: str) -> None:
    """Gives this process the number at the end of Beam's name for it, such as worker_3."""
    if found := re.search(r"\d+$", worker_id):
        os.environ[WORKER_NUMBER] = found[0]


def is_cuda(device: str) -> bool:
    """Whether a device is CUDA, numbered or not."""
    return device.startswith("cuda")

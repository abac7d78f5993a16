"""The known backends by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pydantic import TypeAdapter

from beamrank.errors import ConfigError
from beamrank.machine import cpu_info
from beamrank.plugins import Registry
from models.architectures.encoder.family import EncoderClassifier
from models.architectures.protocol import Architecture
from models.scoring.backends.protocol import Backend, Device

AUTO = "auto"
TABLE = Path(__file__).with_name("faster.json")
BACKENDS: Registry[type[Backend]] = Registry(
    "backend",
    "beamrank.backends",
    {
        "torch": "models.scoring.backends.torch:TorchBackend",
        "openvino": "models.scoring.backends.openvino:OpenvinoBackend",
    },
)


def find_backend(name: str) -> type[Backend]:
    """The backend of a name; that of `auto` is torch until `choose_backend` knows the model.

    Raises:
        ConfigError: the name is unknown.
    """
    if name == AUTO:
        return BACKENDS["torch"]
    if name not in BACKENDS:
        raise ConfigError(f"backend must be one of {', '.join(sorted((AUTO, *BACKENDS)))}, not {name!r}")
    return BACKENDS[name]


# What decides the speed of a product, the fastest first.
_FEATURES = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")


@dataclass(frozen=True)
class Faster:
    """The faster backend of torch and openvino for one kind of model on one kind of processor.

    Attributes:
        processor: its kind, of `processor_kind`.
        encoder: its kind, of `encoder_kind`.
        width: of a token's vector.
        dtype: of the layers.
        backend: the faster one.
    """

    processor: str
    encoder: str
    width: int
    dtype: str
    backend: str


def choose_backend(name: str, architecture: Architecture, device: Device) -> tuple[str, Device]:
    """The name of the backend that scores a model, and its device.

    Args:
        name: as configured; `auto` is OpenVINO where it is installed and was faster, and otherwise torch.
        architecture: the model's.
        device: of the configured backend; for `auto`, that of torch.
    """
    if name != AUTO:
        return name, device
    if device.device != "cpu" or type(architecture) is not EncoderClassifier or find_spec("openvino") is None:
        return "torch", device
    encoder, width = encoder_kind(architecture), architecture.shape.hidden
    if faster_backend(_measured(), processor_kind(), encoder, width, device.dtype) != "openvino":
        return "torch", device
    return "openvino", BACKENDS["openvino"].resolve(device.device, device.dtype)


def faster_backend(table: Sequence[Faster], processor: str, encoder: str, width: int, dtype: str) -> str:
    """The faster backend of the model whose width is nearest; torch if none of its kind was measured."""
    same = [row for row in table if (row.processor, row.encoder, row.dtype) == (processor, encoder, dtype)]
    return min(same, key=lambda row: abs(row.width - width)).backend if same else "torch"


def encoder_kind(architecture: EncoderClassifier) -> str:
    """`pre-norm`, such as ModernBERT, or `post-norm`, such as BERT."""
    return "pre-norm" if architecture.shape.pre_norm else "post-norm"


def processor_kind() -> str:
    """The fastest instructions of this processor that products use, as Linux names them."""
    flags = next(cpu_info("flags"), "").split()
    return next((each for each in _FEATURES if each in flags), "other")


@cache
def _measured() -> list[Faster]:
    return TypeAdapter(list[Faster]).validate_json(TABLE.read_bytes())

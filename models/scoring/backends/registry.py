"""The known backends by name."""

from beamrank.errors import ConfigError
from models.scoring.backends.openvino import OpenvinoBackend
from models.scoring.backends.protocol import Backend
from models.scoring.backends.torch import TorchBackend

BACKENDS: dict[str, type[Backend]] = {"torch": TorchBackend, "openvino": OpenvinoBackend}


def find_backend(name: str) -> type[Backend]:
    """The backend of a name.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in BACKENDS:
        raise ConfigError(f"backend must be one of {', '.join(BACKENDS)}, not {name!r}")
    return BACKENDS[name]

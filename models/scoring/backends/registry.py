"""The known backends by name."""

from beamrank.errors import ConfigError
from models.scoring.backends.choice import AUTO
from models.scoring.backends.openvino import OpenvinoBackend
from models.scoring.backends.protocol import Backend
from models.scoring.backends.torch import TorchBackend

BACKENDS: dict[str, type[Backend]] = {"torch": TorchBackend, "openvino": OpenvinoBackend}


def find_backend(name: str) -> type[Backend]:
    """The backend of a name; that of `auto` is torch until `choose_backend` knows the model.

    Raises:
        ConfigError: the name is unknown.
    """
    if name == AUTO:
        return TorchBackend
    if name not in BACKENDS:
        raise ConfigError(f"backend must be one of {', '.join(sorted((AUTO, *BACKENDS)))}, not {name!r}")
    return BACKENDS[name]

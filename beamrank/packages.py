"""The packages that are installed beside this one: their names are common, and a different package can hide them."""

import importlib.util
import os
from pathlib import Path

from beamrank.errors import PreflightError

_BESIDE = ("models", "transforms", "pipelines")
PACKAGES = ("beamrank", *_BESIDE, "contrib")


def check_packages() -> None:
    """Raises PreflightError where a package of the same name hides one of ours."""
    for name in _BESIDE:
        found, ours = _folder(name), Path(__file__).parent.parent / name
        if found is None or not ours.is_dir() or os.path.realpath(found) == os.path.realpath(ours):
            continue
        raise PreflightError(
            f"the package {name!r} that Python imports is {found}, and beamrank's is {ours}: beamrank installs "
            f"packages with these names ({', '.join(_BESIDE)}), and the folder of a script and PYTHONPATH come "
            f"before them. Rename {found}, or start Python without its folder in the path"
        )


def _folder(name: str) -> str | None:
    """The folder or file that Python imports a package from."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or ())]
    return places[0] if places else spec.origin

"""What commands of benchmarks and experiments share: their parser, and the folder they work in."""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any


def parser_of(
    module: str, text: str | None, options: Mapping[str, tuple[Any, str]] | None = None
) -> argparse.ArgumentParser:
    """The parser of `python -m MODULE`; its help shows the text with its line breaks.

    Args:
        module: the module.
        text: what it does.
        options: by name, the default and the help. A type has no default, a list takes several
            values, and False is a flag.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, (default, shown) in (options or {}).items():
        if default is False:
            parser.add_argument(name, action="store_true", help=shown)
            continue
        nargs, first = ("+", default[0]) if isinstance(default, list) else (None, default)
        if isinstance(first, type):
            parser.add_argument(name, nargs=nargs, type=first, help=shown)
        else:
            shown, kind = f"{shown} (%(default)s)", type(first)
            parser.add_argument(name, nargs=nargs, type=kind, default=default, help=shown)
    return parser


@contextmanager
def work_folder(given: Path | None) -> Iterator[Path]:
    """The given folder, or else a temporary one, which is removed at the end."""
    with nullcontext(given) if given else tempfile.TemporaryDirectory(prefix="beamrank-") as folder:
        path = Path(folder).resolve()
        path.mkdir(parents=True, exist_ok=True)
        yield path

"""What commands of benchmarks and experiments share: their parser, and the folder they work in."""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path


def parser_of(module: str, text: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m MODULE`; its help shows the text with its line breaks."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


@contextmanager
def work_folder(given: Path | None) -> Iterator[Path]:
    """The given folder, or else a temporary one, which is removed at the end."""
    with nullcontext(given) if given else tempfile.TemporaryDirectory(prefix="beamrank-") as folder:
        path = Path(folder).resolve()
        path.mkdir(parents=True, exist_ok=True)
        yield path

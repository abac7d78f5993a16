"""A corpus format: blocks that begin with `=ID`, then the lines of the doc."""

from collections.abc import Iterator

from beamrank.formats.decode.base import Bad, RecordsDecoder, WrongFormatError
from beamrank.formats.files import Beginning, Format, InputFile, Look
from beamrank.formats.schemas import Hints
from beamrank.formats.values import RowError


def _is_blocks(beginning: Beginning) -> bool:
    return beginning.content.startswith(b"=")


def _decode(file: InputFile, _hints: Hints) -> RecordsDecoder:
    if not _is_blocks(Beginning(file.url)):
        raise WrongFormatError(f"{file.url} does not begin with =")

    def records(bad: Bad) -> Iterator[tuple[int, tuple[str, str]]]:
        with file.source.open() as opened:
            blocks = opened.read().decode().split("=")[1:]
        for number, block in enumerate(blocks, 1):
            doc_id, separator, text = block.partition("\n")
            if separator:
                yield number, (doc_id, text.strip())
            else:
                bad(number, RowError("has no text"), block)

    return RecordsDecoder(("doc_id", "text"), records, "block")


BLOCKS = Format(Look("blocks", _is_blocks), _decode, endings=(".blocks",))

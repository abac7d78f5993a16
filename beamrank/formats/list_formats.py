"""The named formats of files with a list of docs in a row: MTEB's top_ranked, LoTTE's answers."""

from collections.abc import Callable

from beamrank.formats.decode.lists import ListDecoder
from beamrank.formats.files import FileFormat, InputFile, open_records
from beamrank.formats.schemas import RUN

_LOTTE = ("qid", "answer_pids")


def _opener(names: tuple[str, str], third: str) -> Callable[[InputFile], ListDecoder]:
    def opened(file: InputFile) -> ListDecoder:
        return ListDecoder(open_records(file), names, third)

    return opened


assert RUN.lists is not None
TOP_RANKED = FileFormat(None, _opener(RUN.lists, "rank"))
LOTTE = FileFormat(None, _opener(_LOTTE, "relevance"))

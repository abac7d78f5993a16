"""Named formats with a list of docs in a row: MTEB's top_ranked, LoTTE's answers."""

from collections.abc import Callable

from beamrank.formats.decode.base import Decoder, Source
from beamrank.formats.decode.json_rows import JsonDecoder
from beamrank.formats.decode.lists import ListDecoder
from beamrank.formats.decode.tables import is_table, open_table_file
from beamrank.formats.files import FileFormat, InputFile
from beamrank.formats.schemas import RUN

_LOTTE = ("qid", "answer_pids")


def _opener(names: tuple[str, str], third: str) -> Callable[[InputFile], ListDecoder]:
    def opened(file: InputFile) -> ListDecoder:
        beginning = file.beginning()
        rows: Decoder
        if is_table(file.url, beginning):
            rows = open_table_file(file.url, beginning, file.partition)
        else:
            rows = JsonDecoder(Source(file.url), ())
        return ListDecoder(rows, names, third)

    return opened


assert RUN.lists is not None
TOP_RANKED = FileFormat(None, _opener(RUN.lists, "rank"))
LOTTE = FileFormat(None, _opener(_LOTTE, "relevance"))

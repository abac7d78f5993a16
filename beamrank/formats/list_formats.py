"""The named formats of runs and qrels: lists of docs in a row, as MTEB's top_ranked and LoTTE's
answers, and tables that hold other inputs too.
"""

from collections.abc import Callable

from beamrank.formats.decode.lists import ListDecoder
from beamrank.formats.files import FileFormat, InputFile, open_records
from beamrank.formats.schemas import QRELS, RUN, labelled

_LOTTE = ("qid", "answer_pids")


def _opener(names: tuple[str, str], third: str) -> Callable[[InputFile], ListDecoder]:
    def opened(file: InputFile) -> ListDecoder:
        return ListDecoder(open_records(file), names, third)

    return opened


assert RUN.lists is not None
TOP_RANKED = FileFormat(None, _opener(RUN.lists, "rank"))
LOTTE = FileFormat(None, _opener(_LOTTE, "relevance"))
LABELLED_RUN = FileFormat(None, None, labelled(RUN))
LABELLED_QRELS = FileFormat(None, None, labelled(QRELS))

"""The named formats that beamrank's own decoders read: of docs and topics text between tabs or
commas, JSON and tables; of runs and qrels lists, as MTEB's top_ranked and LoTTE's answers; labelled
pairs.
"""

from collections.abc import Callable
from dataclasses import replace

from beamrank.formats.decode.lines import csv_row
from beamrank.formats.decode.lists import ListDecoder
from beamrank.formats.decode.tables import ENDINGS, is_table
from beamrank.formats.files import Beginning, Format, InputFile, Look, open_records
from beamrank.formats.schemas import (
    DOCS,
    TOP_RANKED_NAMES,
    TOPICS,
    Hints,
    has_usual_name,
    labelled,
    names_columns,
)
from beamrank.storage.streams import without_compression


def _is_table(beginning: Beginning) -> bool:
    return beginning.is_table or (not beginning.content and is_table(beginning.url))


def _is_beir(beginning: Beginning) -> bool:
    has_text = not beginning.is_parquet or "text" in beginning.record
    return not beginning.is_list and "_id" in beginning.record and has_text


def _is_json(beginning: Beginning) -> bool:
    return beginning.is_list or beginning.line.startswith(b"{")


def _is_tsv(beginning: Beginning) -> bool:
    names = beginning.line.decode("utf-8", "replace").rstrip("\r").split("\t")
    return len(names) == 2 or (
        len(names) > 1 and any(has_usual_name(schema, names) for schema in (DOCS, TOPICS))
    )


def _is_csv(beginning: Beginning) -> bool:
    row = csv_row(beginning.line)
    has_names = any(names_columns(schema, row) for schema in (DOCS, TOPICS))
    return has_names or without_compression(beginning.url).endswith(".csv")


_PARQUET = Look("Parquet or Arrow", _is_table, general=True)
_BEIR = Look("BEIR's JSONL (`_id`)", _is_beir, general=True)
_JSONL = Look("JSONL", _is_json, general=True)
_TSV = Look("columns with a tab between them", _is_tsv, general=True)
_CSV = Look("CSV with a header line", _is_csv, general=True, by_name=True)

_KEYS = ("fields", "template", "columns")
# The second rule: usual names are groups, and a title is joined before any text but `contents`.
TSV = Format(
    _TSV, holds="tsv", keys=(*_KEYS, "header", "quotes"), endings=(".tsv", ".txt"), rules=2
)
CSV = replace(TSV, look=_CSV, holds="csv", keys=(*_KEYS, "header"), endings=(".csv",))
JSONL = Format(_JSONL, holds="json", keys=_KEYS, endings=(".jsonl", ".ndjson", ".json"), rules=2)
PARQUET = replace(JSONL, look=_PARQUET, endings=ENDINGS)
BEIR = replace(JSONL, look=_BEIR, endings=(".jsonl", *ENDINGS), file_in_folder="corpus.jsonl")
BEIR_TOPICS = replace(BEIR, file_in_folder="queries.jsonl")
LABELLED = Format(
    schema=labelled,
    keys=(*_KEYS, "quotes"),
    endings=(*CSV.endings, *TSV.endings, *JSONL.endings, *ENDINGS),
    repeats=True,
)


def _lists(names: tuple[str, str]) -> Callable[[InputFile, Hints], ListDecoder]:
    return lambda file, _: ListDecoder(open_records(file), names)


TOP_RANKED = Format(open=_lists(TOP_RANKED_NAMES))
LOTTE = Format(open=_lists(("qid", "answer_pids")))

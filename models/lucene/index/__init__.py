"""Lucene indexes: building, checking and local copies of remote ones.

An index that beamrank builds holds `beamrank.json`. An index without it, such as one of Anserini's prebuilt ones, is
used as it is; the corpus that it was built from is then unknown.
"""

from models.lucene.index.build import build_index
from models.lucene.index.cache import local_index
from models.lucene.index.content import LocalIndex, describe_files, files_digest
from models.lucene.index.info import (
    INFO_NAME,
    IndexInfo,
    check_index,
    find_damage,
    needs_building,
    read_index_info,
    read_written_info,
    require_index,
)
from models.lucene.index.update import is_outdated

__all__ = [
    "INFO_NAME",
    "IndexInfo",
    "LocalIndex",
    "build_index",
    "check_index",
    "describe_files",
    "files_digest",
    "find_damage",
    "is_outdated",
    "local_index",
    "needs_building",
    "read_index_info",
    "read_written_info",
    "require_index",
]

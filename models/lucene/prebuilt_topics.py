"""pyserini's topics by their names: the names come from its package, the files from Anserini's collection of them."""

import ast
import difflib
import importlib.util
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, sha256
from models.checkpoints.disk_cache import add_entry, cache_folder, exclusive, find_entry
from models.lucene import jvm

_KIND = "topics"
_CLASS = "io/anserini/search/topicreader/Topics.class"
_URL = "https://raw.githubusercontent.com/castorini/anserini-tools/master/topics-and-qrels/"
_UTF8, _STRING, _LONG, _DOUBLE = 1, 8, 5, 6
# The bytes of the other constants of a class after their tag.
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


def fetch_topics(name: str) -> str:
    """The file of some topics, which is downloaded once a machine. Anserini keeps no checksums of them.

    Raises:
        PreflightError: pyserini has no topics of this name, or they cannot be downloaded.
    """
    url = _URL + topics_file_name(name)
    key = sha256(url.encode())[:SHORT]
    base = storage.name(url)

    def fetch(folder: Path) -> str:
        storage.download(url, str(folder / base))
        return key

    try:
        with exclusive(cache_folder(_KIND) / f".{key}.lock"):
            return str((find_entry(_KIND, key) or add_entry(_KIND, key, fetch)) / base)
    except OSError as error:
        raise PreflightError(f"cannot fetch the topics {name} from {url}: {error}") from error


def topics_file_name(name: str) -> str:
    """The name of the file of some topics.

    Raises:
        PreflightError: pyserini is not installed, or has no topics of this name.
    """
    constants = _constant_names()
    files = _files()
    known = {each: files[constant] for each, constant in constants.items() if constant in files}
    if name not in known:
        near = difflib.get_close_matches(name, known, 5, 0.4) or sorted(known)[:5]
        raise PreflightError(f"pyserini has no topics {name!r}. Some of its {len(known)}: {', '.join(near)}")
    return known[name]


def _constant_names() -> dict[str, str]:
    """The names of topics, each with the constant of Anserini that it stands for, from pyserini's source."""
    spec = importlib.util.find_spec("pyserini")
    if spec is None or spec.origin is None:
        raise PreflightError("names of topics come from the package pyserini: pip install pyserini")
    source = (Path(spec.origin).parent / "search" / "_base.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="topics_mapping")], value=ast.Dict() as table):
                found: dict[str, str] = ast.literal_eval(table)
                return found
    raise PreflightError("this version of pyserini keeps the names of its topics elsewhere: give topics.path a file")


def _files() -> dict[str, str]:
    """The file of each constant of Anserini's class of topics: a constant's name is followed by its file's."""
    found: dict[str, str] = {}
    constant = ""
    with zipfile.ZipFile(jvm.anserini_jar()) as jar:
        for text in _strings(jar.read(_CLASS)):
            if re.fullmatch(r"topics\.\S+\.\w+", text):
                if constant:
                    found[constant] = text
                constant = ""
            else:
                constant = text
    return found


def _strings(content: bytes) -> Iterator[str]:
    """The string constants of a compiled class, in their order."""
    (count,) = struct.unpack_from(">H", content, 8)
    texts: dict[int, str] = {}
    strings: list[int] = []
    at, index = 10, 1
    while index < count:
        tag = content[at]
        if tag == _UTF8:
            (size,) = struct.unpack_from(">H", content, at + 1)
            texts[index] = content[at + 3 : at + 3 + size].decode("utf-8", "replace")
            at += 3 + size
        else:
            if tag == _STRING:
                strings.append(struct.unpack_from(">H", content, at + 1)[0])
            at += 1 + _SIZES[tag]
        index += 2 if tag in (_LONG, _DOUBLE) else 1
    return (texts[each] for each in strings)

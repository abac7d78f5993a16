"""CACM from its tar.gz of HTML pages."""

import tarfile
from html.parser import HTMLParser
from pathlib import Path

from beamrank.records import Doc


class _Data(HTMLParser):
    """The text between tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.feed(text)
        self.close()

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def read_cacm(archive: str | Path) -> list[Doc]:
    """The abstracts as the HTML parser's data, white space collapsed."""
    docs = []
    with tarfile.open(archive) as pages:
        for member in pages:
            file = pages.extractfile(member)
            if file is not None:
                text = " ".join(_Data(file.read().decode("utf-8", "replace")).parts)
                docs.append(Doc(Path(member.name).stem, " ".join(text.split())))
    return docs

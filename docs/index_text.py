"""The site's llms.txt: each page with its first sentence, for language models.

The form is that of https://llmstxt.org.
"""

import re
from pathlib import Path
from typing import Any

import yaml

_DOCS = Path(__file__).resolve().parent
_NO_PROSE = re.compile(r"#|\||!\[|<!--|```|- |\d+\. |    ")


def index_text() -> str:
    """The file, in the order of the site's navigation."""
    # The settings of extensions, between both, are of types that only MkDocs reads.
    site, _, pages = (_DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    name, description = re.findall(r"^site_(?:name|description): (.*)$", site, re.MULTILINE)
    parts = [f"# {name}\n", f"> {description}.\n"]
    for group in yaml.safe_load(pages):
        ((title, group_pages),) = group.items()
        if isinstance(group_pages, list):
            parts += [f"## {title}\n", *map(_line, group_pages), ""]
    return "\n".join(parts).rstrip() + "\n"


def _line(page: dict[str, Any]) -> str:
    ((title, path),) = page.items()
    return f"- [{title}]({path.removesuffix('.md')}/): {_first_sentence(path)}"


def _first_sentence(path: str) -> str:
    """The first sentence of a page's first paragraph, without its links."""
    page = (_DOCS / path).read_text(encoding="utf-8")
    paragraphs = page.split("\n\n")
    text = next(
        " ".join(each.split()) for each in paragraphs if not _NO_PROSE.match(each.lstrip("\n"))
    )
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.split(r"(?<=\.)\s(?=[A-Z`])", plain, maxsplit=1)[0].removesuffix(":")

"""A MkDocs hook: links that leave docs/ are replaced.

A picture is copied into the site. Any other link becomes its text.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\./)+[^)\s#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrites the links of a page that leave docs/."""
    root, docs = Path(config.config_file_path).parent, Path(config.docs_dir)
    folder = (docs / page.file.src_uri).parent

    def rewritten(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / match[3]))
        if target.is_relative_to(docs):
            return match[0]
        if not match[1]:
            return match[2]
        place = f"pictures/{target.name}"
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(root / target)))
        return f"![{match[2]}]({os.path.relpath(docs / place, folder)})"

    return _LINK.sub(rewritten, markdown)

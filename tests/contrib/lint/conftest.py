"""What the tests of lint share."""

import pytest


@pytest.fixture
def write(tmp_path):
    """A function that writes a file and returns its path."""

    def write_content(content, name="some.run"):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(tmp_path / name)

    return write_content

"""A server of chat completions."""

from collections.abc import Iterator

import pytest

from contrib.listwise.client import server_of
from tests.support.services.chat_server import ChatServer, chat_server


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server
    server_of.cache_clear()

"""Topics: found, read, checked."""

from beamrank.formats.topics.reader import notes, read_topics, resolved, topics_files
from beamrank.formats.topics.registry import FORMATS, TopicsConfig, TopicsFormat

__all__ = [
    "FORMATS",
    "TopicsConfig",
    "TopicsFormat",
    "notes",
    "read_topics",
    "resolved",
    "topics_files",
]

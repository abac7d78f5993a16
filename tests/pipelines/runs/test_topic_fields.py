"""`topics.template` and `bm25.template`: which text of a topic each stage gets."""

import json
from pathlib import Path

import pytest

from beamrank.config.load import load_config
from beamrank.errors import ConfigError
from beamrank.formats.topics import TopicsConfig, read_topics
from models.lucene import jvm
from tests.support.processes import refused, succeed
from tests.support.runs import PlannedRun
from tests.support.small_collection import TOPICS, SmallCollection

# The title, the first word, and the description.
_FIELDS = {query_id: (text[: text.index(" ")], text) for query_id, text in TOPICS.items()}


@pytest.fixture
def collection(tmp_path: Path) -> SmallCollection:
    made = SmallCollection(tmp_path).with_index()
    rows = (
        {"id": query_id, "title": title, "desc": text}
        for query_id, (title, text) in _FIELDS.items()
    )
    made.write("topics.jsonl", map(json.dumps, rows))
    made.keys["topics"] = {"path": "topics.jsonl", "template": "{title} of {desc}"}
    return made


def _plain(collection: SmallCollection, name: str, template: str) -> PlannedRun:
    """A run of topics that have the texts of a template as they are."""
    texts = (template.format(title=title, desc=text) for title, text in _FIELDS.values())
    collection.write(name, map("\t".join, zip(_FIELDS, texts, strict=True)))
    topics = {"path": name, "format": "tsv"}
    return collection.run(f"topics={json.dumps(topics)}", output=collection.folder / name[:-4])


@pytest.mark.jvm
def test_bm25_gets_the_text_of_its_template_and_all_others_that_of_the_topics(collection):
    same = _plain(collection, "same.tsv", "{title} of {desc}")
    made = collection.run()
    assert made.plan.shards == same.plan.shards
    assert made.rows("retrieve") == same.rows("retrieve")
    titles = _plain(collection, "titles.tsv", "{title}")
    own = collection.run("bm25.template='{title}'")
    assert own.rows("retrieve") == titles.rows("retrieve") != made.rows("retrieve")
    assert dict(own.plan.topics.texts) == dict(same.plan.topics.texts)
    assert {*own.plan.shards.digests}.isdisjoint(made.plan.shards.digests)


_TREC = """<top>
<num> Number: 301
<title> Topic: International
Organized Crime

<desc> Description:
Identify organizations, and, if possible: the
region.

<narr> Narrative:
A relevant document must name x < y.
</top>
<top>
<num>302</num>
<title>Polio</title>
<desc>
Is it under control?
</desc>
<narr>
Data.
</narr>
</top>
"""


def _read_with_anserini(path: str) -> dict[str, dict[str, str]]:
    import jnius

    names = {"title": "title", "desc": "description", "narr": "narrative"}
    reader = jnius.autoclass("io.anserini.search.topicreader.TrecTopicReader")
    topics = reader(jnius.autoclass("java.nio.file.Paths").get(path)).read()
    number = jnius.autoclass("java.lang.Integer")
    return {
        tag: {each: " ".join(topics.get(number(each)).get(name).split()) for each in ("301", "302")}
        for tag, name in names.items()
    }


@pytest.mark.jvm
def test_fields_of_trec_topics_are_those_of_anserini(tmp_path):
    path = tmp_path / "topics"
    path.write_text(_TREC)
    jvm.start(1)
    for tag, texts in jvm.call(_read_with_anserini, str(path)).items():
        topics = read_topics(TopicsConfig(path=str(path), template=f"{{{tag}}}"))
        assert dict(topics.texts) == texts, tag


def test_topics_without_a_field_are_counted_and_an_unknown_field_is_an_error(tmp_path):
    collection = SmallCollection(tmp_path).given_run()
    lines = (f'{{"id": "{query_id}", "title": "{text}"}}' for query_id, text in TOPICS.items())
    collection.write("topics.jsonl", [*lines, '{"id": "q99", "title": "a", "desc": "b"}'])
    collection.keys["topics"] = {"path": "topics.jsonl", "template": "{title} {desc}"}
    for command in ("plan", "run"):
        done = succeed(command, collection.path)
        assert f"{len(TOPICS)} without `desc`" in done.stdout + done.stderr
    collection.keys["topics"]["template"] = "{title} {narr}"
    assert "it has: id, title, desc" in refused("run", collection.path, code=3)


def test_template_of_bm25_needs_names_of_columns(tmp_path):
    collection = SmallCollection(tmp_path).with_index()
    collection.keys["topics"]["header"] = False
    with pytest.raises(ConfigError, match="header"):
        load_config(str(collection.path), ["bm25.template='{title}'"])

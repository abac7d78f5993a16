"""`corpus.template` and `topics.template`: a text is fields as the template has them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, digest_corpus, list_units
from beamrank.formats.rejects import Rejects
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.corpora import docs_of, read_batches
from tests.support.refusals import refuses

_DOCS = [{"title": "T", "text": "x y"}, {"title": "", "text": "z"}]
_TREC = "<DOC>\n<DOCNO>{}</DOCNO>\n<TITLE>{title}</TITLE>\n<TEXT>{text}</TEXT>\n</DOC>\n"
_LINES = {
    "jsonl": [json.dumps({"id": f"{number}", **doc}) for number, doc in enumerate(_DOCS)],
    "beir": [json.dumps({"_id": f"{number}", **doc}) for number, doc in enumerate(_DOCS)],
    "tsv": [
        "id\ttitle\ttext",
        *(f"{number}\t{doc['title']}\t{doc['text']}" for number, doc in enumerate(_DOCS)),
    ],
    "csv": [
        "id,title,text",
        *(f"{number},{doc['title']},{doc['text']}" for number, doc in enumerate(_DOCS)),
    ],
    "trec": [_TREC.format(number, **doc) for number, doc in enumerate(_DOCS)],
}


def _corpus(folder, name: str, template: str | None) -> CorpusConfig:
    path = folder / f"corpus.{name}"
    if name == "parquet":
        pq.write_table(
            pa.table({"id": ["0", "1"], **pa.Table.from_pylist(_DOCS).to_pydict()}), path
        )
    else:
        path.write_text("".join(f"{line}\n" for line in _LINES[name]))
    return CorpusConfig(path=str(path), format=name, template=template)


@pytest.mark.parametrize("name", [*_LINES, "parquet"])
def test_template_lays_out_the_fields_of_a_doc(tmp_path, name):
    for template, texts in (
        ("{title}\n{text}", ["T\nx y", "\nz"]),
        ("{{{text}}} ({title}, {title})", ["{x y} (T, T)", "{z} (, )"]),
    ):
        assert docs_of(read_batches(_corpus(tmp_path, name, template))) == [
            ("0", texts[0]),
            ("1", texts[1]),
        ]
    with pytest.raises(PreflightError, match=r"body|`template`"):
        list_units(_corpus(tmp_path, name, "{body}"))


def test_template_of_beir_takes_a_missing_title_as_empty(tmp_path):
    (tmp_path / "c.jsonl").write_text(
        '{"_id": "1", "text": "x"}\n{"_id": "2", "title": null, "text": "y"}\n'
    )
    corpus = CorpusConfig(path=str(tmp_path / "c.jsonl"), format="beir", template="{title}: {text}")
    assert docs_of(read_batches(corpus)) == [("1", ": x"), ("2", ": y")]


def test_template_is_in_the_digests(tmp_path):
    corpora = [
        _corpus(tmp_path, "jsonl", each) for each in (None, "{title} {text}", "{title}\n{text}")
    ]
    corpora += [corpora[0].model_copy(update={"fields": ("title", "text")})]
    digests = [digest_corpus(corpus) for corpus in corpora]
    assert len({each.digest for each in digests}) == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"template": "text"}, "template 'text' "),
        ({"template": "{}"}, "alone"),
        ({"template": "{text!r}"}, "alone"),
        ({"template": "{text:>9}"}, "alone"),
        ({"template": "{text"}, r"'}'"),
        ({"template": "{text}", "fields": ["text"]}, "`fields` .*`template`"),
        ({"template": "{text}", "header": False}, "`template` .*`header`"),
    ],
)
def test_wrong_template_is_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        CorpusConfig(path="c", format="tsv", **keys)


def test_template_means_nothing_to_a_format_without_fields(tmp_path):
    (tmp_path / "c.tsv").write_text("1\t2\ta query\tand a long passage\n")
    with pytest.raises(PreflightError, match=r"`corpus\.template` .*top1000"):
        list_units(CorpusConfig(path=str(tmp_path / "c.tsv"), format="top1000", template="{text}"))


_TREC_TOPICS = """<top>
<num> Number: 301
<title> Topic: International
 crime, x < y

<desc> Description:
Which organizations?

<narr> Narrative:
Relevant: a
 b
</top>
<top><num>302</num><title>
Polio
</title><narr>c</narr></top>
"""
_XML_TOPICS = """<topics><topic number="301"><title>International crime, x &lt; y</title>
<desc>Which
organizations?</desc><narr>Relevant: a b</narr></topic>
<topic number="302"><title>Polio</title><narr>c</narr></topic></topics>
"""
_TOPIC_ROWS: list[dict[str, str | None]] = [
    {
        "id": "301",
        "title": "International crime, x < y",
        "desc": "Which organizations?",
        "narr": "Relevant: a b",
    },
    {"id": "302", "title": "Polio", "desc": None, "narr": "c"},
]


def _separated(separator: str) -> str:
    header: dict[str, str | None] = {name: name for name in _TOPIC_ROWS[0]}
    quote = '"' if separator == "," else ""
    return "".join(
        separator.join(f"{quote}{value or ''}{quote}" for value in row.values()) + "\n"
        for row in (header, *_TOPIC_ROWS)
    )


_TOPICS = {
    "trec": _TREC_TOPICS,
    "xml": _XML_TOPICS,
    "tsv": _separated("\t"),
    "csv": _separated(","),
    "jsonl": "".join(
        json.dumps({key: value for key, value in row.items() if value}) + "\n"
        for row in _TOPIC_ROWS
    ),
}


@pytest.fixture(params=[*_TOPICS, "parquet"])
def topics(request, tmp_path) -> str:
    """A file with the same two topics, of which one has no `desc`."""
    path = tmp_path / f"topics.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(_TOPIC_ROWS), path)
    else:
        path.write_text(_TOPICS[request.param])
    return str(path)


def test_template_makes_the_texts_of_topics(topics):
    found = read_topics(
        TopicsConfig(path=topics, template="{title} / {desc}"), bm25_template="{narr}{{{Title}}}"
    )
    assert found.table.to_pylist() == [
        {
            "query_id": "301",
            "text": "International crime, x < y / Which organizations?",
            "bm25_text": "Relevant: a b{International crime, x < y}",
        },
        {"query_id": "302", "text": "Polio / ", "bm25_text": "c{Polio}"},
    ]
    assert [note.found for note in found.notes] == ["1 without `desc`"]


def test_template_of_bm25_leaves_the_text_of_topics(topics):
    plain = read_topics(TopicsConfig(path=topics))
    assert plain.notes == []
    found = read_topics(TopicsConfig(path=topics), bm25_template="{title} {narr}")
    assert found.table.select(["query_id", "text"]).equals(plain.table)
    assert [topic.text for topic in found.for_bm25] == [
        "International crime, x < y Relevant: a b",
        "Polio c",
    ]
    assert plain.for_bm25 == plain


def test_field_that_topics_lack_is_an_error_with_those_that_they_have(topics):
    with refuses(PreflightError, "column-missing", file=topics) as error:
        read_topics(TopicsConfig(path=topics, template="{title} {description}"))
    assert "title, desc, narr" in str(error.value)


def test_topic_whose_template_is_empty_is_a_bad_row(topics):
    with pytest.raises(PreflightError) as error:
        read_topics(TopicsConfig(path=topics, template=" {desc}"))
    assert error.value.kind == "topic-empty"
    rejects = Rejects("topics", 1)
    config = TopicsConfig(path=topics, template="{title}")
    found = read_topics(config, rejects, bm25_template="{desc}")
    assert ([topic.query_id for topic in found], rejects.count) == (["301"], 1)


def test_repeated_elements_of_a_topic_are_joined(tmp_path):
    (tmp_path / "t").write_text(
        '<topic number="1"><query>a</query><subtopic>b</subtopic><subtopic>c &amp;\n d</subtopic>'
        "</topic>"
    )
    config = TopicsConfig(path=str(tmp_path / "t"), template="{query} {subtopic}")
    assert [topic.text for topic in read_topics(config)] == ["a b c & d"]


def test_field_of_a_template_can_be_the_text_or_the_id(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"id": "1", "text": "a", "title": "b"}\n')
    config = TopicsConfig(path=str(tmp_path / "t.jsonl"))
    (topic,) = read_topics(config, bm25_template="{id} {text} {title}").table.to_pylist()
    assert topic == {"query_id": "1", "text": "a", "bm25_text": "1 a b"}


@pytest.mark.parametrize(
    "keys",
    [
        {"template": "title"},
        {"template": "{title"},
        {"template": "{}"},
        {"template": "{title}", "header": False},
        {"template": "{title}", "columns": {"text": "title"}},
    ],
)
def test_wrong_template_of_topics_is_refused(keys):
    with pytest.raises(ValidationError):
        TopicsConfig(path="t", **keys)

"""`corpus.template`: the text of a doc is its fields as the template has them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, digest_corpus, list_units
from tests.support.corpora import docs_of, read_batches

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
        ({"template": "text"}, "no field"),
        ({"template": "{}"}, "alone"),
        ({"template": "{text!r}"}, "alone"),
        ({"template": "{text:>9}"}, "alone"),
        ({"template": "{text"}, r"'}'"),
        ({"template": "{text}", "fields": ["text"]}, "give one or the other"),
        (
            {"template": "{text}", "header": False},
            r"`template` .*`header`",
        ),
    ],
)
def test_wrong_template_is_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        CorpusConfig(path="c", format="tsv", **keys)


def test_template_means_nothing_to_a_format_without_fields(tmp_path):
    (tmp_path / "c.tsv").write_text("1\t2\ta query\tand a long passage\n")
    with pytest.raises(PreflightError, match=r"`corpus\.template` .*top1000"):
        list_units(CorpusConfig(path=str(tmp_path / "c.tsv"), format="top1000", template="{text}"))

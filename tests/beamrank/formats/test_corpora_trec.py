"""TREC's SGML as a corpus: which text counts, bad docs, folders as TREC's disks have them."""

import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import PreflightError
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.texts import trec
from tests.support.corpora import (
    COMPRESSORS,
    bad_rows,
    corpus_of,
    docs_of,
    read_batches,
    read_cacm,
    read_docs,
)
from tests.support.refusals import refuses

_FT = """<DOC>
<DOCNO>FT911-3</DOCNO>
<PROFILE>_AN-BEOA7AAIFT</PROFILE>
<DATE>910514
</DATE>
<HEADLINE>
FT  14 MAY 91 / International Company News: Contigas plans DM900m east
German project
</HEADLINE>
<BYLINE>
   By DAVID GOODHART
</BYLINE>
<TEXT>
CONTIGAS, the <B>Ger</B>man gas group &amp; others,
x < y.
</TEXT>
<PUB>The Financial Times</PUB>
</DOC>
"""
_FT_TEXT = (
    "910514 FT 14 MAY 91 / International Company News: Contigas plans DM900m east German project "
    "CONTIGAS, the German gas group & others, x < y."
)
_WEB = """<DOC>
<DOCNO>WTX001-B01-1</DOCNO>
<DOCHDR>
http://x.org/ 1.2.3.4
Content-type: text/html
</DOCHDR>
<html><head><title>Home</title><script>if (a < b) {}</script><style>p {}</style></head>
<body><!-- <b>no --><p>One</p><p>two &eacute;</p></body></html>
</DOC>
"""


@pytest.mark.parametrize(
    ("content", "fields", "docs"),
    [
        (_FT, None, [("FT911-3", _FT_TEXT)]),
        (_FT, ("text",), [("FT911-3", _FT_TEXT[_FT_TEXT.index("CONTIGAS") :])]),
        (_FT, ("BYLINE", "PUB"), [("FT911-3", "By DAVID GOODHART The Financial Times")]),
        (_WEB, None, [("WTX001-B01-1", "Home One two é")]),
        (_WEB, ("title",), [("WTX001-B01-1", "Home")]),
        (
            '<DOC id="XIN_1" type="story" '
                '>\n<HEADLINE>\nA\n</HEADLINE>\n<TEXT><P>\nb\n</P><P>c</P></TEXT>\n</DOC>',
            None,
            [("XIN_1", "A b c")],
        ),
        ("<doc><docno> a </docno> no element <b>holds</b> it</doc ><DOC><DOCNO>b</DOCNO></DOC>\x1a", None,
         [("a", "no element holds it"), ("b", "")]),
        ("<?xml?><root>\n<DOC><DOCNO>a</DOCNO><TEXT>not closed</DOC></root>", None, [("a", "not "
            "closed")]),
    ],
)  # fmt: skip
def test_trec_reads_the_text_of_its_elements(tmp_path, content, fields, docs):
    (tmp_path / "c").write_text(content)
    assert read_docs(tmp_path / "c", "trec", fields) == docs


def test_trec_counts_docs_that_cannot_be_used(tmp_path):
    good = b"<DOC>\n<DOCNO>%d</DOCNO>\n<TEXT>x</TEXT>\n</DOC>\n"
    bad = [
        (
            b"<DOC>\n<DOCNO>u</DOCNO> not closed\n",
            "is not closed: the next <DOC> begins before its </DOC>",
        ),
        (b"<DOC><TEXT>x</TEXT></DOC>\n", "has neither <DOCNO> nor an attribute `id`"),
        (b"<DOC><DOCNO></DOCNO></DOC>\n", "has an empty id"),
        (b"<DOC><DOCNO>a b</DOCNO></DOC>\n", "the id 'a b', which holds white space"),
        (
            b"<DOC><DOCNO>a</DOCNO>caf\xe9</DOC>\n",
            "is not valid UTF-8 (byte 0xe9): convert the file",
        ),
        (b"stray\n", "is text outside of <DOC> and </DOC>"),
    ]
    (tmp_path / "c").write_bytes(
        good % 0 + b"".join(each + good % i for i, (each, _) in enumerate(bad, 1))
    )
    corpus = corpus_of(tmp_path / "c", "trec")
    assert [doc_id for doc_id, _ in docs_of(read_batches(corpus))] == list("0123456")
    found = sorted(bad_rows(corpus), key=lambda row: int(row.place.rpartition(":")[2]))
    lines = [5 + sum(4 + piece.count(b"\n") for piece, _ in bad[:i]) for i in range(len(bad))]
    assert [row.place for row in found] == [f"{tmp_path}/c:{line}" for line in lines]
    for row, (_, reason) in zip(found, bad, strict=True):
        assert reason in row.reason


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ("1\tone\n", None, r"<DOC> .*`corpus\.format: tsv`"),
        ("<top><num>1</num></top>", None, "<DOC>"),
        (_FT, ("BODY",), r"<BODY> .*`corpus\.fields`.*BYLINE"),
        ("", None, "/c "),
    ],
)
def test_trec_refuses_a_file_without_docs(tmp_path, content, fields, message):
    (tmp_path / "c").write_text(content)
    with pytest.raises(PreflightError, match=message):
        list_units(corpus_of(tmp_path / "c", "trec", fields))


def test_truncated_trec_file_is_an_error(tmp_path):
    (tmp_path / "c").write_text(_FT + _FT[:-30])
    with pytest.raises(PreflightError, match="19"):
        list_units(corpus_of(tmp_path / "c", "trec"))


def test_trec_doc_without_an_end_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(trec, "_MAX_DOC_BYTES", 3 << 20)
    (tmp_path / "c").write_text("<DOC><DOCNO>1</DOCNO>" + "x" * (5 << 20))
    with pytest.raises(PreflightError, match="3 MB"):
        read_batches(corpus_of(tmp_path / "c", "trec"))


@pytest.mark.parametrize(
    "opening", ["<!--", "<script>", "<docno>", "<TEXT>", "<", "<a", "<doc ", "</doc "]
)
def test_trec_file_with_unclosed_tags_is_read_quickly(tmp_path, opening):
    (tmp_path / "c").write_text(f"<DOC><DOCNO>1</DOCNO>{opening * 200_000}</DOC>")
    with suppress(PreflightError):
        read_batches(corpus_of(tmp_path / "c", "trec"))


def test_trec_folder_is_read_as_the_disks_have_it(tmp_path):
    (tmp_path / "ft" / "ft911").mkdir(parents=True)
    (tmp_path / "dtds").mkdir()
    doc = "<DOC><DOCNO>{}</DOCNO><TEXT>{}</TEXT></DOC>\n"
    (tmp_path / "ft" / "ft911" / "ft911_1").write_text(doc.format("1", "a") + doc.format("2", "b"))
    (tmp_path / "ft" / "ft911" / "ft911_2.gz").write_bytes(
        COMPRESSORS[".gz"](doc.format("3", "c").encode())
    )
    for name in ("readme", "README.txt", "dtds/ft.dtd", "ft/readfrcg.z", "ft/.hidden"):
        (tmp_path / name).write_bytes(b"not docs")
    (tmp_path / "ft" / "readfrcg.z").rename(tmp_path / "dtds" / "readfrcg.z")
    assert read_docs(tmp_path, "trec") == [("1", "a"), ("2", "b"), ("3", "c")]
    (tmp_path / "ft" / "fr940104.0Z").write_bytes(b"\x1f\x9d\x90")
    with refuses(PreflightError, "packed", file="fr940104.0Z"):
        read_docs(tmp_path, "trec")


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(st.text(st.sampled_from("ab é\n<>&/!-"), max_size=20), min_size=1, max_size=8),
    read_bytes=st.integers(5, 40),
)
def test_trec_docs_do_not_depend_on_the_blocks_that_are_read(tmp_path_factory, texts, read_bytes):
    path = tmp_path_factory.mktemp("trec") / "c"
    path.write_text(
        "".join(
            f"<DOC>\n<DOCNO>{i}</DOCNO>\n<TEXT>{text}\n</DOC>\n" for i, text in enumerate(texts)
        )
    )
    (unit,) = list_units(corpus_of(path, "trec"))
    (whole,) = read_unit(unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trec, "_READ_BYTES", read_bytes)
        (found,) = read_unit(unit)
    assert found == whole
    assert whole.doc_ids == [str(i) for i in range(len(texts))]


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(
            [b"<DOC>", b"</DOC>", b"<DOCNO>", b"1</DOCNO>", b"<TEXT>", b"x", b"\xff", b"\n"]
        )
    )
)
def test_trec_reads_or_refuses_any_file(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("trec") / "c"
    path.write_bytes(b"<DOC><DOCNO>0</DOCNO></DOC>" + b"".join(parts))
    last = path.read_bytes().rpartition(b"<DOC>")[2]
    if b"</DOC>" in last:
        assert docs_of(read_batches(corpus_of(path, "trec")))[0] == ("0", "")
    else:
        with refuses(PreflightError, "truncated"):
            read_batches(corpus_of(path, "trec"))


@pytest.mark.data
def test_cacm_in_sgml_has_the_texts_of_its_html(shared_data, tmp_path):
    """The reference, Python's HTML parser, sets spaces around a `<` that begins no tag."""
    with (
        tarfile.open(shared_data / "cacm/cacm.tar.gz") as archive,
        open(tmp_path / "cacm.sgml", "wb") as file,
    ):
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                text = content.read().decode("utf-8", "replace")
                file.write(
                    f"<DOC>\n<DOCNO> {Path(member.name).stem} </DOCNO>\n{text}</DOC>\n".encode()
                )
    docs = read_docs(tmp_path / "cacm.sgml", "trec")
    reference = read_cacm(shared_data)
    assert len(docs) == 3204
    for doc_id, text in docs:
        assert text.replace(" ", "") == reference[doc_id].replace(" ", "")

"""TREC CAR: paragraphs, pages and outlines in CBOR."""

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.schemas import Hints
from beamrank.formats.texts.units import CorpusUnit
from beamrank.formats.topics import TopicsConfig, read_topics
from contrib.papers.car import PARAGRAPHS_CORPUS
from tests.support.archives import unpack
from tests.support.corpora import bad_rows, corpus_of, docs_of, read_batches, read_docs
from tests.support.refusals import refuses

_PARAGRAPHS = [
    [0, b"p1", [[0, "Under the "], [1, [0, "Rules", [], b"Rules", "Rules"]], [0, "é"]]],
    [0, b"p2", []],
]
_TEXTS = [("p1", "Under the  Rules é"), ("p2", "")]
_V15 = b"".join(cbor2.dumps(paragraph) for paragraph in _PARAGRAPHS)


def _with_header(kind, items):
    return cbor2.dumps(["CAR", [kind], [0, "release"]]) + b"\x9f" + items + b"\xff"


def _car(path, content):
    path.write_bytes(content)
    return corpus_of(path, "car")


@pytest.mark.parametrize("content", [_V15, _with_header(2, _V15)], ids=["v1.5", "v2"])
def test_car_reads_paragraphs_with_and_without_a_header(tmp_path, content):
    (unit,) = list_units(_car(tmp_path / "c.cbor", content))
    (batch,) = read_unit(unit)
    assert docs_of([batch]) == _TEXTS
    assert batch.positions[1] == content.index(_V15) + len(cbor2.dumps(_PARAGRAPHS[0]))
    assert unit.place(7) == f"{tmp_path}/c.cbor at byte 7"


@pytest.mark.parametrize("has_header", [False, True])
@pytest.mark.parametrize("unit_bytes", [60, 500, 3000])
def test_car_file_is_divided_between_paragraphs(tmp_path, has_header, unit_bytes):
    texts = [(f"p{i}" * (1 + i % 40), "é\0" * (i * 97 % 400)) for i in range(60)]
    items = b"".join(cbor2.dumps([0, doc_id.encode(), [[0, text]]]) for doc_id, text in texts)
    content = _with_header(2, items) if has_header else items
    units = list_units(_car(tmp_path / "c", content), unit_bytes)
    assert len(units) > 5
    assert [unit.start for unit in units[1:]] == [unit.end for unit in units[:-1]]
    assert (units[0].start, units[-1].end) == (0, len(content))
    # In any order: each is read by a different worker.
    batches = {unit.index: list(read_unit(unit)) for unit in reversed(units)}
    assert docs_of([batch for unit in units for batch in batches[unit.index]]) == texts
    for batch in batches[3]:
        for doc_id, position in zip(batch.doc_ids, batch.positions, strict=True):
            assert cbor2.loads(content[position:])[1].decode() == doc_id
            assert units[3].place(position) == f"{tmp_path}/c at byte {position}"
    cut = replace(units[2], end=units[2].end - 1)
    with pytest.raises(DataError, match=rf"byte {cut.start} "):
        list(read_unit(cut))


def test_car_text_that_looks_like_paragraphs_is_an_error_and_no_doc(tmp_path):
    text = "".join(cbor2.dumps([0, b"x", []]).decode("utf-8", "surrogateescape") for _ in range(9))
    hidden = (
        b"\x83\x00\x42p1\x81\x82\x00\x78"
        + bytes([len(raw := text.encode("utf-8", "surrogateescape"))])
        + raw
    )
    units = list_units(_car(tmp_path / "c", hidden + _V15), unit_bytes=12)
    with refuses(DataError, "damaged"):
        list(read_unit(units[0]))


@pytest.mark.parametrize("has_header", [False, True])
def test_car_reads_across_the_borders_of_its_buffer(tmp_path, has_header):
    texts = [(f"p{i}", "é" * (i * 997 % 400_000)) for i in range(30)]
    items = b"".join(cbor2.dumps([0, doc_id.encode(), [[0, text]]]) for doc_id, text in texts)
    assert (
        docs_of(read_batches(_car(tmp_path / "c", _with_header(2, items) if has_header else items)))
        == texts
    )


def test_car_counts_paragraphs_that_cannot_be_used(tmp_path):
    bad = [[0, b"x", [[2, "?"]]], [0, b"a b", []], [0, b"\xff", []], "text", [0, b"", []]]
    invalid = b"\x83\x00\x42p4\x81\x82\x00\x62\xff\xfe"
    content = (
        _V15 + b"".join(cbor2.dumps(item) for item in bad) + invalid + cbor2.dumps([0, b"p3", []])
    )
    (batch,) = read_batches(_car(tmp_path / "c.cbor", content))
    assert docs_of([batch]) == [*_TEXTS, ("p3", "")]
    reasons = ["neither text", "white space", "UTF-8", "not a paragraph", "empty id", "UTF-8"]
    rows = bad_rows(corpus_of(tmp_path / "c.cbor", "car"))
    bad_ones = sorted(rows, key=lambda row: int(row.place.rpartition(" ")[2]))
    assert all(reason in row.reason for row, reason in zip(bad_ones, reasons, strict=True))


def _page(*parts):
    return [0, "Name", b"Page", list(parts)]


def _section(heading, *parts):
    return [0, heading, heading.encode(), list(parts)]


_P = [[0, f"p{number}".encode(), [[0, f"text {number}"]]] for number in range(6)]
_PAGES = [
    _page(
        [1, _P[0]],
        _section("A", [1, _P[1]], _section("B", [3, 2, _P[2]]), [1, _P[3]]),
        [2, "url", [[1, _P[4]]]],
    ),
    _page([1, _P[1]], _section("C", [1, _P[5]])),
]


@pytest.mark.parametrize("has_header", [False, True])
def test_car_pages_hold_paragraphs_in_the_order_of_the_text(tmp_path, has_header):
    content = b"".join(map(cbor2.dumps, _PAGES))
    (tmp_path / "c.cbor").write_bytes(_with_header(0, content) if has_header else content)
    (unit,) = list_units(corpus_of(tmp_path / "c.cbor", "car-pages"))
    (batch,) = read_unit(unit)
    assert docs_of([batch]) == [(f"p{number}", f"text {number}") for number in range(6)]
    assert batch.positions == [1, 1, 1, 1, 1, 2]
    assert unit.place(1) == f"{tmp_path}/c.cbor at page 1"


def test_car_pages_count_what_cannot_be_used(tmp_path):
    broken = [
        _page([1, _P[0]], [1, "no paragraph"]),
        _page([1, _P[1]], [7, "?"], [1, _P[2]]),
        "no page",
        _page([1, _P[3]]),
    ]
    (tmp_path / "c.cbor").write_bytes(b"".join(map(cbor2.dumps, broken)))
    (batch,) = read_batches(corpus_of(tmp_path / "c.cbor", "car-pages"))
    assert batch.doc_ids == ["p0", "p1", "p3"]
    bad = bad_rows(corpus_of(tmp_path / "c.cbor", "car-pages"))
    assert [row.place.rpartition("/")[2] for row in bad] == [
        f"c.cbor at page {page}" for page in range(1, 4)
    ]
    reasons = ["not a paragraph", "has a part that is not a section", "is not a page"]
    assert all(reason in row.reason for row, reason in zip(bad, reasons, strict=True))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_car_pages_report_any_damage_or_are_read(data):
    content = bytearray(_with_header(0, b"".join(map(cbor2.dumps, _PAGES))))
    cut = data.draw(st.integers(0, len(content)))
    flipped = data.draw(st.integers(0, max(0, cut - 1)))
    content[flipped : flipped + 1] = data.draw(st.binary(max_size=2))
    for form in ("car-pages", "car"):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "c.cbor").write_bytes(content[:cut])
            refusal, batches = None, []
            try:
                batches = read_batches(corpus_of(f"{folder}/c.cbor", form))
            except BeamrankError as error:
                refusal = error
        assert refusal is None or f"{folder}/c.cbor" in str(refusal)
        assert all(doc_id and isinstance(text, str) for doc_id, text in docs_of(batches))


def test_outlines_are_topics(tmp_path):
    path = tmp_path / "test.outlines"
    config = TopicsConfig(path=str(path), format="car-outlines")
    path.write_bytes(_with_header(1, b"".join(map(cbor2.dumps, _PAGES))))
    assert list(read_topics(config)) == [
        ("Page/A", "Page A"),
        ("Page/A/B", "Page A B"),
        ("Page/C", "Page C"),
    ]
    content = b"".join(map(cbor2.dumps, [*_PAGES, "no page"]))
    for damaged, kind, place in (
        (content, "item", 3),
        (content[:-20], "damaged", None),
        (_V15, "other-part", None),
        (b"Page/A\n", "not-car", None),
    ):
        path.write_bytes(damaged)
        with refuses(PreflightError, kind, place):
            read_topics(config)


@pytest.mark.data
@pytest.mark.parametrize("name", ["train.test200.cbor.outlines", "train.test200.cbor"])
def test_outlines_of_trec_car_have_the_topics_of_its_qrels(car, name):
    topics = read_topics(TopicsConfig(path=f"{car}/{name}", format="car-outlines"))
    judged = read_topics(
        TopicsConfig(path=f"{car}/train.test200.cbor.hierarchical.qrels", format="car-qrels")
    )
    assert (len(topics), len(judged)) == (1987, 1860)
    assert set(judged) <= set(topics)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (_with_header(0, b""), "other-part"),
        (_with_header(1, b""), "other-part"),
        (_with_header(9, b""), "other-part"),
        (cbor2.dumps(["CAR", [[]], []]), "other-part"),
        (cbor2.dumps(["CAR", [], []]), "other-part"),
        (cbor2.dumps([0, "Page", b"Page", []]), "other-part"),
        (cbor2.dumps({"a": 1}), "not-car"),
        (_with_header(2, b"")[:-2], "damaged"),
        (b"", "not-car"),
        (b"\x83\x00", "not-car"),
    ],
)
def test_car_refuses_a_file_that_does_not_hold_paragraphs(tmp_path, content, kind):
    with refuses(PreflightError, kind):
        list_units(_car(tmp_path / "c.cbor", content))


@pytest.mark.parametrize(
    "content",
    [
        _V15[:-1],
        _with_header(2, _V15)[:-1],
        _with_header(2, _V15) + _V15,
        _V15 + b"\xff" + _V15,
        _V15 + b"\x1c",
    ],
    ids=["cut", "no end of list", "more after the list", "end without a list", "not CBOR"],
)
def test_car_reports_a_wrong_end(tmp_path, content):
    unit = CorpusUnit(
        0, _car(tmp_path / "c.cbor", content).path, PARAGRAPHS_CORPUS, Hints(format="car"), 0, 0
    )
    with refuses(DataError, "damaged"):
        list(read_unit(unit))


def test_car_reports_any_damage_or_reads_docs(tmp_path):
    dice = random.Random(7)
    for _ in range(300):
        content = bytearray(_with_header(2, _V15 * 3))
        content[dice.randrange(len(content))] = dice.randrange(256)
        try:
            batches = read_batches(_car(tmp_path / "c.cbor", bytes(content)))
        except BeamrankError:
            continue
        assert docs_of(batches)


@pytest.fixture(scope="module")
def car(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("car")
    unpack(shared_data / "trec_car_test200.tar.gz", folder)
    return folder / "trec_car_test200"


@pytest.mark.data
def test_trec_car_test200_has_4689_paragraphs(car):
    found = read_docs(f"{car}/train.test200.cbor.paragraphs", "car")
    docs = dict(found)
    assert len(docs) == len(found) == 4689
    qrels = (car / "train.test200.cbor.hierarchical.qrels").read_text().splitlines()
    assert {line.split()[2] for line in qrels} <= docs.keys()
    assert docs["0018287ae97358671d32f194beeceff55a2bf167"].startswith(
        "The quality of a system's voltage regulation"
    )
    assert 77 < sum(len(text.split()) for text in docs.values()) / len(docs) < 80


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train.test200.cbor", "pages or outlines"),
        ("train.test200.cbor.outlines", "pages or outlines"),
        ("v2_header_sample/test.cbor", r"pages \(articles\)"),
    ],
)
def test_trec_car_pages_and_outlines_are_not_files_of_paragraphs(car, name, kind):
    with pytest.raises(PreflightError, match=rf" {kind}: .*`corpus.format: car-pages`"):
        list_units(corpus_of(car / name, "car"))
    with refuses(PreflightError, "other-part"):
        list_units(corpus_of(car / "train.test200.cbor.paragraphs", "car-pages"))


@pytest.mark.data
def test_the_pages_of_trec_car_hold_its_paragraphs(car):
    docs = read_docs(f"{car}/train.test200.cbor", "car-pages")
    assert len(docs) == 4689
    assert dict(docs) == dict(read_docs(f"{car}/train.test200.cbor.paragraphs", "car"))
    redirect = "#REDIRECT  anchor text to page 2"
    sample = [("para1", "anchor text to page R"), ("para2", "This is page 2"), ("paraR", redirect)]
    assert read_docs(f"{car}/v2_header_sample/test.cbor", "car-pages") == sample

"""Parquet, TREC CAR, the digest of a corpus, and real collections."""

import random
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import cbor2
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank import errors
from beamrank.formats.config import CorpusConfig
from beamrank.formats.corpora import CorpusUnit, DocBatch, corpus_digest, find_taken, list_units, place, read_unit


def read_batches(corpus: CorpusConfig) -> list[DocBatch]:
    return [batch for unit in list_units(corpus) for batch in read_unit(unit)]


def docs_of(batches: list[DocBatch]) -> list[tuple[str, str]]:
    return [doc for batch in batches for doc in zip(batch.doc_ids, batch.texts, strict=True)]


class TestParquet:
    def corpus(self, path: Path, table: pa.Table, fields: tuple[str, ...] | None = None) -> CorpusConfig:
        pq.write_table(table, path, row_group_size=2)
        return CorpusConfig(path=str(path), format="parquet", fields=fields)

    def test_two_columns_of_one_name_are_refused(self, tmp_path: Path) -> None:
        table = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array(["x"])], names=["id", "id", "text"])
        with pytest.raises(errors.PreflightError, match=r"c\.parquet has more than one column `id`"):
            list_units(self.corpus(tmp_path / "c.parquet", table))

    def test_a_unit_is_a_row_group_and_a_position_a_row(self, tmp_path: Path) -> None:
        table = pa.table({"_id": ["a", "b", "c"], "text": ["x", "", "z"], "title": ["T", "", "U"]})
        corpus = self.corpus(tmp_path / "c.parquet", table)
        units = list_units(corpus)
        assert [(unit.start, unit.end) for unit in units] == [(0, 1), (1, 2)]
        batches = [batch for unit in units for batch in read_unit(unit)]
        assert docs_of(batches) == [("a", "x"), ("b", ""), ("c", "z")]
        assert [batch.positions for batch in batches] == [[0, 1], [2]]
        assert place(units[1], 2) == f"{tmp_path}/c.parquet at row 2 (from 0)"

    def test_reads_the_fields_that_are_named(self, tmp_path: Path) -> None:
        table = pa.table({"id": [1, 2], "text": ["x", "y"], "title": ["T", ""]})
        corpus = self.corpus(tmp_path / "c.parquet", table, ("title", "text"))
        assert docs_of(read_batches(corpus)) == [("1", "T x"), ("2", "y")]

    @pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.string_view()])
    def test_contents_come_before_text_in_any_kind_of_string(self, tmp_path: Path, kind: Any) -> None:
        table = pa.table({"doc_id": ["a"], "text": ["no"], "contents": pa.array(["é"]).cast(kind)})
        assert docs_of(read_batches(self.corpus(tmp_path / "c.parquet", table))) == [("a", "é")]

    def test_reads_dictionary_columns(self, tmp_path: Path) -> None:
        table = pa.table({"id": ["a", "b"], "text": pa.array(["x", "x"]).dictionary_encode()})
        assert docs_of(read_batches(self.corpus(tmp_path / "c.parquet", table))) == [("a", "x"), ("b", "x")]

    def test_counts_rows_that_it_cannot_use(self, tmp_path: Path) -> None:
        latin = pa.array([b"x", None, b"x", b"caf\xe9", b"x", b"x"], pa.binary()).view(pa.string())
        table = pa.table({"id": [None, "b", "c c", "d", "", "f"], "text": latin})
        batches = read_batches(self.corpus(tmp_path / "c.parquet", table))
        assert docs_of(batches) == [("f", "x")]
        bad = [row for batch in batches for row in batch.bad]
        assert [row.place.split("parquet ")[1] for row in bad] == [f"at row {row} (from 0)" for row in range(5)]
        for row, reason in zip(
            bad, ["id that is null", "`text` that is null", "white space", "UTF-8", "empty"], strict=True
        ):
            assert reason in row.reason

    @pytest.mark.parametrize(
        ("columns", "fields", "message"),
        [
            ({"key": ["a"], "text": ["x"]}, None, "has no column `doc_id` or `_id` or `id`; it has: key, text"),
            ({"id": ["a"], "body": ["x"]}, None, "has no column `contents` or `text`"),
            ({"id": ["a"], "text": ["x"]}, ("title",), "has no column `title`"),
            ({"id": ["a"], "text": [1.5]}, None, "`text` of .* is of type double"),
            ({"id": [1.5], "text": ["x"]}, None, "`id` of .* is of type double"),
        ],
    )
    def test_refuses_columns_that_are_not_there(
        self, tmp_path: Path, columns: dict[str, list[Any]], fields: tuple[str, ...] | None, message: str
    ) -> None:
        corpus = self.corpus(tmp_path / "c.parquet", pa.table(columns), fields)
        with pytest.raises(errors.PreflightError, match=message):
            list_units(corpus)

    def test_refuses_a_file_that_is_not_parquet(self, tmp_path: Path) -> None:
        (tmp_path / "c.parquet").write_text("1\tone\n")
        with pytest.raises(
            errors.PreflightError, match=r"is not a Parquet file: .*tab between them: set `corpus\.format: tsv`"
        ):
            list_units(CorpusConfig(path=str(tmp_path / "c.parquet"), format="parquet"))

    def test_damage_inside_is_an_error(self, tmp_path: Path) -> None:
        table = pa.table({"id": [f"d{i}" for i in range(999)], "text": [f"text {i}" for i in range(999)]})
        pq.write_table(table, tmp_path / "c.parquet", compression="zstd")
        content = bytearray((tmp_path / "c.parquet").read_bytes())
        content[4:2000] = bytes(1996)
        (tmp_path / "c.parquet").write_bytes(content)
        with pytest.raises(errors.DataError, match=r"cannot read .*c\.parquet"):
            read_batches(CorpusConfig(path=str(tmp_path / "c.parquet"), format="parquet"))


PARAGRAPHS = [
    [0, b"p1", [[0, "Under the "], [1, [0, "Rules", [], b"Rules", "Rules"]], [0, "é"]]],
    [0, b"p2", []],
]
TEXTS = [("p1", "Under the  Rules é"), ("p2", "")]
V15 = b"".join(cbor2.dumps(paragraph) for paragraph in PARAGRAPHS)


def with_header(kind: int, items: bytes) -> bytes:
    return cbor2.dumps(["CAR", [kind], [0, "release"]]) + b"\x9f" + items + b"\xff"


class TestCar:
    def corpus(self, path: Path, content: bytes) -> CorpusConfig:
        path.write_bytes(content)
        return CorpusConfig(path=str(path), format="car")

    @pytest.mark.parametrize("content", [V15, with_header(2, V15)], ids=["v1.5", "v2"])
    def test_reads_paragraphs_with_and_without_a_header(self, tmp_path: Path, content: bytes) -> None:
        corpus = self.corpus(tmp_path / "c.cbor", content)
        (unit,) = list_units(corpus)
        (batch,) = read_unit(unit)
        assert docs_of([batch]) == TEXTS
        assert batch.positions == [0, 1]
        assert place(unit, 1) == f"{tmp_path}/c.cbor at paragraph 1 (from 0)"

    @pytest.mark.parametrize("has_header", [False, True])
    def test_reads_across_the_borders_of_what_is_read_at_once(self, tmp_path: Path, has_header: bool) -> None:
        long = [[0, b"p%d" % i, [[0, "é" * (i * 997 % 400_000)]]] for i in range(30)]
        items = b"".join(cbor2.dumps(paragraph) for paragraph in long)
        corpus = self.corpus(tmp_path / "c.cbor", with_header(2, items) if has_header else items)
        assert docs_of(read_batches(corpus)) == [(f"p{i}", "é" * (i * 997 % 400_000)) for i in range(30)]

    def test_counts_paragraphs_that_it_cannot_use(self, tmp_path: Path) -> None:
        bad = [[0, b"x", [[2, "?"]]], [0, b"a b", []], [0, b"\xff", []], "text", [0, b"", []]]
        invalid = b"\x83\x00\x42p4\x81\x82\x00\x62\xff\xfe"
        content = V15 + b"".join(cbor2.dumps(item) for item in bad) + invalid + cbor2.dumps([0, b"p3", []])
        (batch,) = read_batches(self.corpus(tmp_path / "c.cbor", content))
        assert docs_of([batch]) == [*TEXTS, ("p3", "")]
        reasons = ["neither text", "white space", "UTF-8", "no paragraph", "empty id", "UTF-8"]
        assert len(batch.bad) == len(reasons)
        for row, reason in zip(batch.bad, reasons, strict=True):
            assert reason in row.reason

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (with_header(0, b""), r"holds pages \(articles\)"),
            (with_header(1, b""), "holds outlines"),
            (with_header(9, b""), "holds an unknown kind"),
            (cbor2.dumps(["CAR", [[]], []]), "holds an unknown kind"),
            (cbor2.dumps(["CAR", [], []]), "holds an unknown kind"),
            (cbor2.dumps([0, "Page", b"Page", []]), "holds pages or outlines"),
            (cbor2.dumps({"a": 1}), "holds something else than TREC CAR"),
            (with_header(2, b"")[:-2], "no list of paragraphs"),
            (b"", "does not begin with CBOR"),
            (b"\x83\x00", "does not begin with CBOR"),
        ],
    )
    def test_refuses_a_file_that_is_not_paragraphs(self, tmp_path: Path, content: bytes, message: str) -> None:
        with pytest.raises(errors.PreflightError, match=message):
            list_units(self.corpus(tmp_path / "c.cbor", content))

    @pytest.mark.parametrize(
        "content",
        [V15[:-1], with_header(2, V15)[:-1], with_header(2, V15) + V15, V15 + b"\xff" + V15, V15 + b"\x1c"],
        ids=["cut", "no end of list", "more after the list", "end of no list", "no CBOR"],
    )
    def test_a_file_that_does_not_end_well_is_an_error(self, tmp_path: Path, content: bytes) -> None:
        unit = CorpusUnit(0, self.corpus(tmp_path / "c.cbor", content).path, "car", None, 0, 0)
        with pytest.raises(errors.DataError, match="after its first"):
            list(read_unit(unit))

    def test_any_damage_is_an_error_of_ours_or_a_doc(self, tmp_path: Path) -> None:
        dice = random.Random(7)
        for _ in range(300):
            content = bytearray(with_header(2, V15 * 3))
            content[dice.randrange(len(content))] = dice.randrange(256)
            corpus = self.corpus(tmp_path / "c.cbor", bytes(content))
            try:
                batches = read_batches(corpus)
            except errors.BeamrankError:
                continue
            assert sum(len(batch.doc_ids) + len(batch.bad) for batch in batches) >= 1


class TestTaken:
    @pytest.mark.parametrize(
        ("corpus_format", "path", "url", "taken"),
        [
            ("jsonl", "docs", "docs/out/plan-0.json", True),
            ("jsonl", "docs", "docs/plan-0.json", True),
            ("jsonl", "docs", "docs2/out/plan-0.json", False),
            ("jsonl", "docs", "out/docs/plan-0.json", False),
            ("jsonl", "docs", "docs/out/mono.trec", False),
            ("jsonl", "docs", "docs/out/.plan-0.json", False),
            ("jsonl", "docs/corpus.jsonl", "docs/out/plan-0.json", False),
            ("tsv", "docs", "docs/out/runs/mono.msmarco.tsv", True),
            ("tsv", "docs", "docs/out/plan-0.json", False),
            ("parquet", "docs", "docs/out/mono/part-0.parquet", True),
            ("beir", "docs", "docs/out/plan-0.json", False),
            ("jsonl", "docs/*.jsonl", "docs/out/plan-0.json", False),
            ("jsonl", "docs/**/*.json", "docs/out/plan-0.json", True),
            # The folder of the output is one of the matches itself.
            ("jsonl", "docs/*", "docs/out/plan-0.json", True),
            ("jsonl", "do*/out/*.json", "docs/out/plan-0.json", True),
        ],
    )
    def test_a_file_in_a_corpus_is_found(
        self, tmp_path: Path, corpus_format: Any, path: str, url: str, taken: bool
    ) -> None:
        corpus = CorpusConfig(path=f"{tmp_path}/{path}", format=corpus_format)
        wanted = f"{tmp_path}/{url}"
        assert find_taken(corpus, [f"{tmp_path}/elsewhere", wanted]) == (wanted if taken else None)
        assert list(tmp_path.iterdir()) == []

    def test_a_link_hides_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "docs").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "docs")
        wanted = f"{tmp_path}/docs/out/plan-0.json"
        assert find_taken(CorpusConfig(path=f"{tmp_path}/link", format="jsonl"), [wanted]) == wanted

    def test_a_bucket_is_not_a_folder_of_this_machine(self) -> None:
        corpus = CorpusConfig(path="gs://bucket/docs", format="jsonl")
        assert find_taken(corpus, ["gs://bucket/docs/out/plan-0.json"]) == "gs://bucket/docs/out/plan-0.json"
        assert find_taken(corpus, ["/bucket/docs/out/plan-0.json", "s3://bucket/docs/out/plan-0.json"]) is None


class TestDigest:
    def test_depends_on_names_content_format_and_fields_but_not_on_the_place(self, tmp_path: Path) -> None:
        def digest(folder: str, corpus_format: Any = "jsonl", fields: tuple[str, ...] | None = None) -> str:
            return corpus_digest(CorpusConfig(path=str(tmp_path / folder), format=corpus_format, fields=fields))

        for folder, name, text in [("a", "c", "1"), ("b", "c", "1"), ("c", "d", "1"), ("d", "c", "2")]:
            (tmp_path / folder).mkdir()
            (tmp_path / folder / f"{name}.jsonl").write_text(text)
            (tmp_path / folder / "other.jsonl").write_text("same")
        assert digest("a") == digest("b")
        assert len(digest("a")) == 64
        others = [digest("c"), digest("d"), digest("a", fields=("x",)), digest("a/c.jsonl", "tsv"), digest("a/c.jsonl")]
        assert len({digest("a"), *others}) == 6

    def test_a_remote_file_is_told_by_its_store(self) -> None:
        files = fsspec.filesystem("memory")
        corpus = CorpusConfig(path="memory://digest/c.tsv", format="tsv")
        files.pipe("/digest/c.tsv", b"1\tone\n")
        first = corpus_digest(corpus)
        assert corpus_digest(corpus) == first
        files.pipe("/digest/c.tsv", b"1\ttwo\n")
        assert corpus_digest(corpus) != first
        files.rm("/digest", recursive=True)


@pytest.fixture(scope="module")
def car(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("car")
    with tarfile.open(shared_data / "trec_car_test200.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "trec_car_test200"


@pytest.mark.data
class TestRealCollections:
    def test_trec_car_test200_has_4689_paragraphs_and_all_judged_ones(self, car: Path) -> None:
        batches = read_batches(CorpusConfig(path=f"{car}/train.test200.cbor.paragraphs", format="car"))
        docs = dict(docs_of(batches))
        assert len(docs) == sum(len(batch.doc_ids) for batch in batches) == 4689
        assert not [bad for batch in batches for bad in batch.bad]
        qrels = (car / "train.test200.cbor.hierarchical.qrels").read_text().splitlines()
        assert {line.split()[2] for line in qrels} <= docs.keys()
        assert docs["0018287ae97358671d32f194beeceff55a2bf167"].startswith(
            "The quality of a system's voltage regulation"
        )
        mean_words = sum(len(text.split()) for text in docs.values()) / len(docs)
        assert 77 < mean_words < 80

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("train.test200.cbor", "pages or outlines"),
            ("train.test200.cbor.outlines", "pages or outlines"),
            ("v2_header_sample/test.cbor", r"pages \(articles\)"),
        ],
    )
    def test_trec_car_pages_and_outlines_are_refused(self, car: Path, name: str, kind: str) -> None:
        with pytest.raises(errors.PreflightError, match=f"holds {kind}"):
            list_units(CorpusConfig(path=f"{car}/{name}", format="car"))

    def test_nfcorpus_has_3633_docs(self, shared_data: Path, tmp_path: Path) -> None:
        with zipfile.ZipFile(shared_data / "nfcorpus" / "nfcorpus.zip") as archive:
            archive.extractall(tmp_path)
        corpus = CorpusConfig(path=str(tmp_path / "nfcorpus"), format="beir")
        whole = docs_of(read_batches(corpus))
        assert len({doc_id for doc_id, _ in whole}) == len(whole) == 3633
        assert dict(whole)["MED-10"].startswith(
            "Statin Use and Breast Cancer Survival: A Nationwide Cohort Study from Fin"
        )
        cut = [batch for unit in list_units(corpus, 100_000) for batch in read_unit(unit)]
        assert docs_of(cut) == whole

"""Topics: each format, and everything that is refused."""

import gzip
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import pytest

from beamrank import errors
from beamrank.formats.config import TopicsConfig
from beamrank.formats.topics import read_topics


def read(path: Path | str, topics_format: Any) -> list[Any]:
    return [tuple(topic) for topic in read_topics(TopicsConfig(path=str(path), format=topics_format))]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


TOP = """<top>
<num> Number: 301
<title> Topic: International
 Organized  Crime, x < y

<desc> Description:
Identify organizations.
</top>
"""


class TestFormats:
    def test_tsv(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.tsv", "\ufeff2\t Androgen receptor define\r\n\n010\tdépôt\u2028x")
        assert read(path, "tsv") == [("2", " Androgen receptor define"), ("010", "dépôt\u2028x")]

    def test_jsonl(self, tmp_path: Path) -> None:
        lines = ['{"query_id": "a", "id": "no", "text": "x"}', '{"id": 7, "query": "y"}', '{"_id": "c", "text": "z"}']
        assert read(write(tmp_path / "t.jsonl", "\n".join(lines)), "jsonl") == [("a", "x"), ("7", "y"), ("c", "z")]

    def test_beir(self, tmp_path: Path) -> None:
        path = write(tmp_path / "queries.jsonl", '{"_id": "q1", "text": "x", "metadata": {}}\n')
        assert read(path, "beir") == read(tmp_path, "beir") == [("q1", "x")]

    def test_trec_topics_are_number_and_title(self, tmp_path: Path) -> None:
        closed = "<top><num>302</num><title>\nPoliomyelitis\n</title><desc>no</desc></top>"
        assert read(write(tmp_path / "t.txt", f"{TOP}\n{closed}\n"), "trec") == [
            ("301", "International Organized Crime, x < y"),
            ("302", "Poliomyelitis"),
        ]

    def test_trec_docs_are_number_and_body(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.txt", "<DOC>\n<DOCNO> 1 </DOCNO>\n\n What articles\nexist <b>?\n \n</DOC>\n")
        assert read(path, "trec") == [("1", "What articles exist <b>?")]

    def test_car_ids_stay_and_texts_are_decoded(self, tmp_path: Path) -> None:
        ids = ["enwiki:A%20b/C%2FD+e", "%C3%89mile/enwiki:x", "Infield%20fly%20rule/%22Ordinary%20effort%22"]
        texts = ["A b C D+e", "Émile enwiki:x", 'Infield fly rule "Ordinary effort"']
        assert read(write(tmp_path / "t.txt", "\n".join(ids)), "car") == list(zip(ids, texts, strict=True))

    def test_compressed_and_remote_files(self, tmp_path: Path) -> None:
        assert read(write(tmp_path / "t.tsv.gz", gzip.compress(b"1\tx\n")), "tsv") == [("1", "x")]
        fsspec.filesystem("memory").pipe("/topics/t.tsv", b"1\tx\n2\ty\n")
        assert read("memory://topics/t.tsv", "tsv") == [("1", "x"), ("2", "y")]


class TestRefusals:
    @pytest.mark.parametrize(
        ("topics_format", "content", "message"),
        [
            ("tsv", "", "holds no topics"),
            ("tsv", "\n\r\n", "holds no topics"),
            ("trec", " \n", "holds no topics"),
            ("tsv", "1\tx\n\n1\ty\n", r"t\.txt:3: the topic has the query_id '1', which line 1 has too$"),
            ("car", "A/b\nA/b\n", r"t\.txt:2: .* which line 1 has too \(`sort -u` leaves one of each\)"),
            ("tsv", "1\tx\n2\t \n", r"t\.txt:2: the topic '2' has no text"),
            ("tsv", b"1\tx\n2\tcaf\xe9\n", r"t\.txt:2: the topic is not valid UTF-8 \(byte 0xe9\)"),
            ("tsv", "1 x\n", r"t\.txt:1: the topic has 1 column where id<TAB>text"),
            ("tsv", "1\tx\ty\n", r"t\.txt:1: the topic has 3 columns"),
            ("tsv", "a b\tx\n", r"the id 'a b', which holds white space \(U\+0020\)"),
            ("tsv", "a\0\tx\n", r"a control character \(U\+0000\)"),
            (
                "tsv",
                "#a\tx\n",
                "the id '#a', which begins with `#`: trec_eval would read its lines of a run as comments",
            ),
            ("tsv", "a\tx\0\n", "'a' has a NUL character in its text"),
            ("tsv", "1\tx\r2\ty\r", r"t\.txt:1: the topic holds a carriage return \(CR\)"),
            ("tsv", "1\tx\ry\r\n", r"t\.txt:1: the topic holds a carriage return \(CR\)"),
            ("jsonl", '{"id": "1", "text": "x"}\r{"id": "2", "text": "y"}', r"holds a carriage return \(CR\)"),
            ("car", "A\rB\r", r"holds a carriage return \(CR\)"),
            ("trec", TOP.replace("\n", "\r"), r"t\.txt:1: the topic holds a carriage return \(CR\)"),
            ("tsv", "\tx\n", "empty id"),
            ("jsonl", '{"qid": "1", "text": "x"}', "has no field `query_id` or `_id` or `id`; it has: qid, text"),
            ("jsonl", '{"id": "1", "title": "x"}', "has no field `text` or `query`; it has: id, title"),
            ("jsonl", '{"id": "1", "text": null}', "`text` that is null"),
            ("jsonl", '{"id": "1", "text": "\\ud800"}', "surrogate"),
            ("jsonl", "1\tx", "is no JSON"),
            ("beir", '{"id": "1", "text": "x"}', "has no field `_id`"),
            ("car", "A%20b/%FF\n", r"%FF' is not UTF-8 when percent-decoded"),
            ("car", "enwiki:\n", "'enwiki:' has no text"),
            ("car", "A b\n", "white space"),
            ("trec", "\n1\tx\n", r"t\.txt:2: the topic is not inside <top> and </top>"),
            ("trec", TOP + "<top>\n<num> 302\n", r"t\.txt:9: the topic is not inside"),
            ("trec", TOP.replace("</top>", "") + TOP, r"t\.txt:1: the topic is not closed before the next"),
            ("trec", "<top><num> 1</num></top>", "has no <title>"),
            ("trec", TOP.replace("</top>\n", "") + TOP.removeprefix("<top>\n"), r"t\.txt:1: .* more than one <num>"),
            ("trec", "<top><num> 1</num><title>a</title><title>b</title></top>", "has more than one <title>"),
            ("trec", "<top><title> x</title></top>", "has no <num>"),
            ("trec", "<top><num> 1\n<title>\n<desc> x</top>", "'1' has no text"),
            ("trec", "<DOC>1</DOC>", "does not begin with <DOCNO>"),
            ("trec", TOP.encode() + b"\n" + TOP.replace("Crime", "\xe9").encode("latin-1"), r"t\.txt:10: .*UTF-8"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_line(
        self, tmp_path: Path, topics_format: str, content: str | bytes, message: str
    ) -> None:
        with pytest.raises(errors.PreflightError, match=message):
            read(write(tmp_path / "t.txt", content), topics_format)

    @pytest.mark.timeout(10)
    @pytest.mark.parametrize(
        "content", ["<top>" * 100_000, "</top>" * 100_000, "<top><doc>" * 50_000, "<top" + " " * 99999]
    )
    def test_tags_that_are_never_closed_are_refused_quickly(self, tmp_path: Path, content: str) -> None:
        with pytest.raises(errors.PreflightError, match=r"t\.txt:1: the topic is not inside <top> and </top>"):
            read(write(tmp_path / "t.txt", content), "trec")

    def test_problems_of_a_kind_are_one_example_with_their_number(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.tsv", "ok\tx\n" + "bad\n" * 7 + "ok\ty\n1\t \n2\t \n")
        with pytest.raises(errors.PreflightError) as caught:
            read(path, "tsv")
        assert str(caught.value).split("\n") == [
            f"10 lines of {path} cannot be read as topics of `format: tsv`",
            f"  {path}:2: the topic has 1 column where id<TAB>text, exactly 2, are expected (and 6 more like it)",
            f"  {path}:9: the topic has the query_id 'ok', which line 1 has too",
            f"  {path}:10: the topic '1' has no text (and 1 more like it)",
        ]

    @pytest.mark.parametrize(
        ("content", "given", "remedy"),
        [
            (TOP * 90, "jsonl", "TREC's .*: set `topics.format: trec`"),
            (TOP, "tsv", "set `topics.format: trec`"),
            ('{"query_id": "1", "text": "x"}\n', "tsv", "JSONL: set `topics.format: jsonl`"),
            ('{"_id": "1", "text": "x"}\n', "trec", "set `topics.format: beir`"),
            ('{"id": "1", "text": "x"}\n', "beir", "set `topics.format: jsonl`"),
            ("\ufeff1\tx\n", "jsonl", "a tab between them: set `topics.format: tsv`"),
            ("1\tx\n", "car", "set `topics.format: tsv`"),
            (b"PAR1\0\0PAR1", "tsv", "Parquet: `topics.format` can be tsv, jsonl, beir, trec, car"),
            (gzip.compress(b"1\tx\n", mtime=0), "tsv", r"compressed with gzip: give it a name that ends in \.gz"),
            (lzma.compress(b"1\tx\n"), "trec", r"compressed with xz: give it a name that ends in \.xz"),
        ],
    )
    def test_the_format_that_a_file_looks_like_is_named(
        self, tmp_path: Path, content: str | bytes, given: str, remedy: str
    ) -> None:
        with pytest.raises(errors.PreflightError, match=remedy):
            read(write(tmp_path / "t.txt", content), given)

    def test_no_other_format_is_named_for_a_file_of_the_given_one(self, tmp_path: Path) -> None:
        for content, given in [('{"_id": "1"}', "jsonl"), ("1\tx\n1\ty\n", "tsv"), (TOP + TOP, "trec"), ("", "tsv")]:
            with pytest.raises(errors.PreflightError) as caught:
                read(write(tmp_path / "t.txt", content), given)
            assert "looks like" not in str(caught.value)

    def test_a_beir_folder_names_its_format(self, tmp_path: Path) -> None:
        write(tmp_path / "queries.jsonl", '{"_id": "q1", "text": "x"}\n')
        with pytest.raises(errors.PreflightError, match=r"set `topics\.format: beir` for the queries\.jsonl in it"):
            read(tmp_path, "jsonl")

    def test_a_path_that_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(errors.PreflightError, match="there are no topics at"):
            read(tmp_path / "none.tsv", "tsv")
        with pytest.raises(errors.PreflightError, match="are a folder"):
            read(tmp_path, "tsv")
        with pytest.raises(errors.PreflightError, match=r"holds no queries\.jsonl"):
            read(tmp_path, "beir")

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.tsv.gz", gzip.compress(b"1\tx\n")[:-6])
        with pytest.raises(errors.PreflightError, match=r"cannot read .*t\.tsv\.gz"):
            read(path, "tsv")


@pytest.mark.data
class TestRealCollections:
    def test_cacm_has_64_topics(self, shared_data: Path) -> None:
        topics = read(shared_data / "cacm" / "topics.cacm.txt", "trec")
        assert [query_id for query_id, _ in topics] == [str(number) for number in range(1, 65)]
        assert topics[1][1] == (
            "I am interested in articles written either by Prieve or Udo Pooch Prieve, B. Pooch, U."
        )

    def test_msmarco_has_6980_dev_topics(self, shared_data: Path) -> None:
        topics = read(shared_data / "msmarco" / "topics.msmarco-passage.dev-subset.txt", "tsv")
        assert len(topics) == 6980
        assert topics[0] == ("1048585", "what is paula deen's brother")

    def test_car_topics_are_those_of_the_qrels(self, shared_data: Path) -> None:
        with tarfile.open(shared_data / "trec_car_test200.tar.gz") as archive:
            folder = "trec_car_test200/benchmarkY1test"
            texts = archive.extractfile(f"{folder}/topics.car17v1.5.benchmarkY1test.txt")
            qrels = archive.extractfile(f"{folder}/qrels.car17v1.5.benchmarkY1test.txt")
            assert texts is not None
            assert qrels is not None
            judged = {line.split()[0].decode() for line in qrels}
            fsspec.filesystem("memory").pipe("/car/topics.txt", texts.read())
        topics = dict(read("memory://car/topics.txt", "car"))
        assert len(topics) == 2125
        assert judged == topics.keys()
        assert (
            topics["Division%20of%20labour/Theorists/%C3%89mile%20Durkheim"]
            == "Division of labour Theorists Émile Durkheim"
        )

    def test_nfcorpus_has_all_queries_of_its_three_splits(self, shared_data: Path, tmp_path: Path) -> None:
        with zipfile.ZipFile(shared_data / "nfcorpus" / "nfcorpus.zip") as archive:
            archive.extractall(tmp_path)
        topics = read(tmp_path / "nfcorpus", "beir")
        assert len(topics) == 2590 + 324 + 323
        assert topics[0] == ("PLAIN-3", "Breast Cancer Cells Feed on Cholesterol")

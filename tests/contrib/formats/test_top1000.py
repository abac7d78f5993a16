"""MS MARCO's top1000 files as topics, corpus and candidates."""

import random
import re

import pytest

from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.files import Beginning
from beamrank.formats.run_units import is_twice_encoded
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.join.run_shards import ROUTED
from contrib.formats.top1000 import CORPUS
from tests.support.corpora import COMPRESSORS, bad_rows, corpus_of, each_compression
from tests.support.given_runs import read_given
from tests.support.processes import beamrank_here, succeed
from tests.support.refusals import refuses
from tests.support.runs import read_trec, run_bytes
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection, small_cascade

# As the released file is: unranked, the lines of a query apart, passages that repeat, one broken
# line.
LINES = [
    "188714\t1000052\tfoods and supplements to lower blood sugar\tWatch portion sizes: Ã© Itâ€™s "
    "so.",
    "1082792\t1000084\twhat does the golgi apparatus do\tStart your trial\u00a0now.",
    "188714\t1000094\tfoods and supplements to lower blood sugar\tLower BPM results",
    "broken\tline",
    "1082792\t1000052\twhat does the golgi apparatus do\tWatch portion sizes: é It’s so.",
]


@pytest.fixture
def url(tmp_path):
    (tmp_path / "top1000.dev.tsv").write_text(
        "".join(f"{line}\n" for line in LINES), encoding="utf-8"
    )
    return str(tmp_path / "top1000.dev.tsv")


def test_top1000_is_topics_corpus_and_candidates(url):
    assert list(read_topics(TopicsConfig(path=url, format="top1000"))) == [
        ("188714", "foods and supplements to lower blood sugar"),
        ("1082792", "what does the golgi apparatus do"),
    ]
    (unit,) = list_units(corpus_of(url, "top1000"))
    (batch,) = read_unit(unit)
    assert batch.doc_ids == ["1000052", "1000084", "1000094", "1000052"]
    assert batch.keys == ["188714 1000052", "1082792 1000084", "188714 1000094", "1082792 1000052"]
    assert batch.texts[3] == "Watch portion sizes: é It’s so."
    (bad,) = bad_rows(corpus_of(url, "top1000"))
    assert bad.reason == "the row has 2 columns, where the rows before have 4"


@pytest.mark.parametrize("unit_bytes", [9, 1 << 20])
def test_candidates_are_in_the_order_of_the_file(url, unit_bytes):
    given = read_given(url, unit_bytes=unit_bytes)
    assert given.order == {"188714": ["1000052", "1000094"], "1082792": ["1000084", "1000052"]}
    assert given.scores["188714"] == [-1.0, -2.0]
    assert all(batch.rows.column("score").null_count == len(batch.rows) for batch in given.batches)
    columns = [(*batch.rows.schema.names, *batch.rows.schema.types) for batch in given.batches]
    assert set(columns) == {(*ROUTED.names[:-1], *ROUTED.types[:-1])}
    (broken,) = given.rejects.examples
    assert re.match(rf"{url}( at byte \d+|:4): ", broken)
    (twice,) = (each for each in given.batches if each.twice_encoded)
    assert (twice.twice_encoded, twice.twice_example) == (
        1,
        f"{url}{' at byte 0' if unit_bytes == 9 else ':1'}",
    )


@pytest.mark.parametrize(
    "text", ["Spaß“ and é", "naïve Â", "café", "10 °C – 5 €", "Ã", "¿Qué?", "a â b"]
)
def test_text_that_was_encoded_once_is_not_counted(text):
    assert not is_twice_encoded(text)


@pytest.mark.parametrize("original", ["é", "°", "’", "“", "–", "€", "Â", "\u00a0"])
@pytest.mark.parametrize("read_as", ["latin-1", "cp1252"])
def test_text_that_was_encoded_twice_is_counted(original, read_as):
    assert is_twice_encoded(f"x {original.encode().decode(read_as)} y")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("188714\t5\tanother text\tpassage", "query-twice"),
        ("7\t5\t \tpassage", "topic-empty"),
        ("#7\t5\tquery\tpassage", "comment-id"),
    ],
)
def test_topics_with_a_problem_are_refused(url, line, kind):
    with open(url, "a") as file:
        file.write(f"{line}\n")
    with refuses(PreflightError, kind, 6, url):
        read_topics(TopicsConfig(path=url, format="top1000"))


@pytest.mark.parametrize(
    ("unit_bytes", "places"), [(60, "byte 3.*byte 0"), (1 << 20, "line 6: .*line 1")]
)
def test_candidate_that_is_there_twice_is_named_with_both_places(url, unit_bytes, places):
    with open(url, "a") as file:
        file.write("188714\t1000052\tq\tp\n")
    with pytest.raises(PreflightError, match=places):
        read_given(url, unit_bytes=unit_bytes)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"188714\t1 2\tq\tp\n", "'1 2'"),
        (b"188714\t\xff\tq\tp\n", "UTF-8"),
    ],
    ids=["white space", "not UTF-8"],
)
def test_candidates_with_an_invalid_id_are_bad_rows(url, line, reason):
    with open(url, "ab") as file:
        file.write(line)
    assert reason in read_given(url).rejects.examples[-1]


@each_compression
def test_top1000_is_recognized_by_its_columns(tmp_path, ending):
    content = "".join(f"{line}\n" for line in LINES).encode()
    (tmp_path / f"top{ending}").write_bytes(COMPRESSORS[ending](content))
    assert CORPUS.look.matches(Beginning(str(tmp_path / f"top{ending}")))
    (tmp_path / f"qrels{ending}").write_bytes(COMPRESSORS[ending](b"188714\t0\t1000052\t1\n" * 30))
    assert not CORPUS.look.matches(Beginning(str(tmp_path / f"qrels{ending}")))


def test_top1000_as_a_run_names_the_remedy(url):
    with pytest.raises(PreflightError, match=r"`candidates.run`"):
        read_run(url)


def _lines() -> list[str]:
    """The lines of all topics, shuffled; each topic's candidates stay in their order."""
    left = {query_id: list(doc_ids) for query_id, doc_ids in CANDIDATES.items()}
    turns = random.Random(7).sample([query_id for query_id in left for _ in left[query_id]], 90)
    rows = [(query_id, left[query_id].pop(0)) for query_id in turns]
    return [
        f"{query_id}\t{doc_id}\t{TOPICS[query_id]}\t{DOCS[doc_id]}" for query_id, doc_id in rows
    ]


@pytest.fixture
def collection(tmp_path) -> SmallCollection:
    made = small_cascade(tmp_path)
    first, *others = _lines()
    # The first line tells the format.
    made.write("top1000.dev.tsv", [first, "4\tbroken line", *others])
    file = {"path": "top1000.dev.tsv", "format": "top1000"}
    made.keys |= {"corpus": file, "topics": file, "candidates": {"run": "top1000.dev.tsv", "k": 9}}
    return made


def test_run_of_a_top1000_file_has_the_bytes_of_separate_files(collection, tmp_path):
    done = succeed("run", collection.path, "--only", "0/1")
    assert "unranked" in done.stderr
    assert ": 1 (first: " in done.stderr
    assert "rows of the corpus that could not be read: 1 (first: " in done.stderr
    separate = tmp_path / "separate"
    separate.mkdir()
    small_cascade(separate).run()
    for name in ("mono.trec", "duo-sum.trec"):
        assert (collection.output / "runs" / name).read_bytes() == (
            separate / "out/runs" / name
        ).read_bytes()
    assert read_trec(collection.output / "runs/candidates.trec") == CANDIDATES


def test_shards_of_a_top1000_file_do_not_matter(collection, tmp_path):
    collection.run()
    collection.run("shards=1", output=tmp_path / "one")
    assert run_bytes(tmp_path / "one") == run_bytes(collection.output)


def test_candidate_that_only_another_query_has_is_missing(collection, tmp_path):
    """Whether a doc is found must not depend on the other queries of its shard."""
    doc_id = next(each for each in DOCS if each not in CANDIDATES["q0"])
    collection.given_run({**CANDIDATES, "q0": [doc_id, *CANDIDATES["q0"][:8]]})
    for shards in ("shards=1", "shards=10"):
        options = ("--set", shards, "--output", tmp_path / shards, "--only", "0/1")
        done = beamrank_here("run", collection.path, *options)
        assert done.returncode == 1
        assert f": 1 (first: '{doc_id}' of query_id 'q0')" in done.stderr


def test_index_of_a_top1000_file_is_refused(collection):
    with pytest.raises(ConfigError, match="candidates"):
        _ = collection.with_index().config


def test_format_of_a_top1000_file_is_guessed(collection):
    for key in ("corpus", "topics"):
        collection.keys[key] = {"path": "top1000.dev.tsv"}
    done = succeed("run", collection.path, "--stage", "retrieve")
    assert "`corpus.format: top1000`" in done.stderr
    assert "`topics.format: top1000`" in done.stderr

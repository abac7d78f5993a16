"""Examples of MS MARCO's files and of runs, against the code of 2019, and by TensorFlow."""

import gzip
import json
import random
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import BertTokenizer

from beamrank.errors import ConfigError, DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.notes import SILENT
from beamrank.ranking.input_layout import InputLimits
from beamrank.records import Topic
from contrib.tensorflow2019.examples.command import convert_examples
from contrib.tensorflow2019.examples.files import kind_of, stored_examples
from contrib.tensorflow2019.examples.layout import ExampleSettings
from contrib.tensorflow2019.examples.sources import Conversion, ScanPart, scan_path, write_query_ids
from contrib.tensorflow2019.examples.tfrecord import encode, frame
from models.checkpoints.checkpoint import fetch_tokenizer, resolve_checkpoint
from tests import ROOT
from tests.support.models import tensorflow_examples
from tests.support.services import environments
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection
from tests.support.tiers import slow_but

_DRAWN = random.Random(5)
_WORDS = [
    "the",
    "golgi",
    "apparatus",
    "blood-sugar",
    "café",
    "naïve",
    "unbelievable",
    "[SEP]",
    "中文",
    "water",
    "3.5",
]
PASSAGES = {
    str(1_000_000 + number): " ".join(_DRAWN.choices(_WORDS, k=_DRAWN.choice([3, 40, 600])))
    for number in range(40)
}
QUERIES = {
    "188714": "blood sugar",
    "1082792": "what does the golgi apparatus do",
    "995526": "query " * 70,
}
ROWS = sorted(
    (doc_id, query_id) for query_id in QUERIES for doc_id in _DRAWN.sample(sorted(PASSAGES), 20)
)
RELEVANT = {
    query_id: {next(doc for doc, query in ROWS if query == query_id): 1} for query_id in QUERIES
}


@pytest.fixture
def top1000(tmp_path: Path) -> Path:
    path = tmp_path / "top1000.dev.tsv"
    lines = [
        f"{query_id}\t{doc_id}\t{QUERIES[query_id]}\t{PASSAGES[doc_id]}\n"
        for doc_id, query_id in ROWS
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _convert(
    source: Path,
    target: Path,
    to: str = "tfrecord",
    max_bad_rows: int = 0,
    relevance=None,
    **settings,
) -> list[dict]:
    """The examples of the one source, with their ids."""
    tokenizer = fetch_tokenizer("embedded:mono")
    fake = ("00000000", tokenizer.encode(["FAKE DOCUMENT"], 512).ids[0].as_py())
    made = {"schema": "mono", "limits": InputLimits("original", 64, 512), "fake": fake, **settings}
    if relevance is None:
        relevance = RELEVANT if source.name.startswith("top1000") else {}
    conversion = Conversion(
        ExampleSettings(special=tokenizer.special, **made),
        "embedded:mono",
        relevance,
        1,
        target,
        1 << 12,
    )
    written = convert_examples([str(source)], target, to, conversion, max_bad_rows, SILENT)
    if to != "tfrecord":
        return []
    path = next(str(path) for path in written if path.suffix == ".tf")
    tables = [
        table
        for stored in stored_examples(path, "tfrecord")
        for table in stored.tables(Rejects("examples", NO_LIMIT))
    ]
    return [row for table in tables for row in table.to_pylist()]


class _Code2019:
    """tokenization.convert_to_bert_input of dl4marco-bert, over transformers' tokenizer."""

    def __init__(self) -> None:
        self._tokenizer = BertTokenizer.from_pretrained(
            resolve_checkpoint("embedded:mono", "mono").folder
        )

    def ids(self, text: str, max_seq_length: int, add_cls: bool) -> list[int]:
        tokens = self._tokenizer.tokenize(text, split_special_tokens=True)[: max_seq_length - 2]
        return self._tokenizer.convert_tokens_to_ids(["[CLS]"] * add_cls + tokens + ["[SEP]"])


@pytest.fixture(scope="module")
def code() -> _Code2019:
    return _Code2019()


def test_examples_of_top1000_are_those_of_the_code_of_2019(top1000, tmp_path, code):
    examples = _convert(top1000, tmp_path / "out", schema="car", docs=21)
    order = list(dict.fromkeys(query_id for _, query_id in ROWS))
    expected = []
    for query_id in order:
        query_ids = code.ids(QUERIES[query_id], 64, True)
        docs = [(doc_id, PASSAGES[doc_id]) for doc_id, query in ROWS if query == query_id]
        for doc_id, text in [*docs, ("00000000", "FAKE DOCUMENT")]:
            expected.append(
                {
                    "query_id": query_id,
                    "doc_id": doc_id,
                    "query_ids": query_ids,
                    "doc_ids": code.ids(text, 512 - len(query_ids), False),
                    "label": int(doc_id in RELEVANT[query_id]),
                    "len_gt_titles": 1,
                }
            )
    assert examples == expected
    assert {len(example["query_ids"]) for example in examples} == {4, 10, 64}
    assert max(len(example["query_ids"]) + len(example["doc_ids"]) for example in examples) == 511


def test_examples_of_duo_are_those_of_the_code_of_2019(top1000, tmp_path, code):
    examples = _convert(top1000, tmp_path / "out", schema="duo", docs=3)
    assert len(examples) == 3 * 3 * 2
    docs = {
        query_id: [doc_id for doc_id, query in ROWS if query == query_id][:3]
        for query_id in QUERIES
    }
    for example in examples:
        query_ids = code.ids(QUERIES[example["query_id"]], 64, True)
        both = [
            code.ids(PASSAGES[example[name]], (512 - len(query_ids)) // 2, False)
            for name in ("doc_id_i", "doc_id_j")
        ]
        assert example["input_ids"] == query_ids + both[0] + both[1]
        assert example["segment_ids"] == [0] * len(query_ids) + [1] * len(both[0]) + [2] * len(
            both[1]
        )
        assert example["label"] == (example["doc_id_i"] in RELEVANT[example["query_id"]])
    (first, second, third) = docs[examples[0]["query_id"]]
    pairs = [
        (first, second),
        (first, third),
        (second, first),
        (second, third),
        (third, first),
        (third, second),
    ]
    assert [(example["doc_id_i"], example["doc_id_j"]) for example in examples[:6]] == pairs


@pytest.mark.parametrize("schema", ["mono", "duo"])
def test_triples_are_two_examples_each(tmp_path, code, schema):
    path = tmp_path / "triples.train.small.tsv"
    lines = ["a query\tthe golgi\tblood sugar", "broken\tline", "what\tcafé\t3.5 water"]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    examples = _convert(path, tmp_path / "out", max_bad_rows=1, schema=schema)
    assert sorted(child.name for child in (tmp_path / "out").iterdir()) == ["dataset_train.tf"]
    assert [example["label"] for example in examples] == [1, 0, 1, 0]
    query, first, second = (code.ids(text, 512, text == "a query") for text in lines[0].split("\t"))
    if schema == "mono":
        assert examples[:2] == [
            {"query_ids": query, "doc_ids": first, "label": 1},
            {"query_ids": query, "doc_ids": second, "label": 0},
        ]
    else:
        assert [example["input_ids"] for example in examples[:2]] == [
            query + first + second,
            query + second + first,
        ]


def test_empty_source_is_refused(tmp_path):
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(PreflightError, match=r"empty.tsv"):
        _convert(tmp_path / "empty.tsv", tmp_path / "out")


def test_triples_of_ids_are_refused(tmp_path):
    path = tmp_path / "qidpidtriples.train.tsv"
    for line in ("1000094\t5399011\t4239068\n", "1000\tD500\tD600\n"):
        path.write_text(line)
        with pytest.raises(PreflightError, match="column 1 and 2 and 3 "):
            _convert(path, tmp_path / "out")
    path.write_text("what is it\tit is blue\t0\n")
    with pytest.raises(PreflightError, match="column 3 "):
        _convert(path, tmp_path / "out")


def test_header_of_triples_is_no_example(tmp_path):
    path = tmp_path / "triples.tsv"
    path.write_text("query\tpositive\tnegative\na query\tthe golgi\tblood sugar\n")
    assert len(_convert(path, tmp_path / "out", max_bad_rows=1)) == 2


def test_triples_with_one_text_twice_or_none_are_no_examples(tmp_path):
    """As in a training: a copy of the relevant passage would have both labels."""
    path = tmp_path / "triples.tsv"
    path.write_text(
        "what\tit is\tIt  IS\nwhat\tit is\t\u2063\nwhat\tit is\tit was\n", encoding="utf-8"
    )
    assert len(_convert(path, tmp_path / "out", max_bad_rows=2)) == 2


def test_qrels_that_label_nothing_are_refused(top1000, tmp_path):
    """Of other queries, of other docs, or for examples that have labels."""
    _convert(top1000, tmp_path / "examples")
    for relevance in ({"7": {"1": 1}}, {query_id: {"1": 1} for query_id in QUERIES}):
        with pytest.raises(DataError, match="label"):
            _convert(top1000, tmp_path / "out", relevance=relevance)
    with pytest.raises(ConfigError, match="--qrels"):
        _convert(tmp_path / "examples" / "dataset_dev.tf", tmp_path / "out", relevance=RELEVANT)
    assert not (tmp_path / "out").exists()


def test_more_broken_lines_than_max_bad_rows_write_nothing(top1000, tmp_path):
    top1000.write_text(top1000.read_text(encoding="utf-8") + "broken\n" * 3, encoding="utf-8")
    with pytest.raises(DataError, match=r": 3 \(first: .*1 column"):
        _convert(top1000, tmp_path / "out", max_bad_rows=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_examples_of_a_run_are_those_of_its_top1000_file(tmp_path, checkpoints):
    collection = (
        SmallCollection(tmp_path).given_run(k=9).with_models(checkpoints, mono_k=9, duo_k=3)
    )
    collection.run()
    lines = [
        f"{query_id}\t{doc_id}\t{TOPICS[query_id]}\t{DOCS[doc_id]}\n"
        for query_id in CANDIDATES
        for doc_id in CANDIDATES[query_id]
    ]
    (tmp_path / "top1000.dev.tsv").write_text("".join(lines))
    for schema, docs in (("mono", None), ("duo", 4)):
        of_run, of_file = (
            _convert(source, tmp_path / f"{name}-{schema}", relevance={}, schema=schema, docs=docs)
            for name, source in (("run", collection.output), ("file", tmp_path / "top1000.dev.tsv"))
        )
        assert sorted(of_run, key=str) == sorted(of_file, key=str)


def test_run_without_tokens_names_the_remedy(tmp_path):
    collection = SmallCollection(tmp_path).given_run()
    collection.run()
    with pytest.raises(PreflightError, match="--stage tokenize"):
        _convert(collection.output, tmp_path / "out")


@pytest.mark.slow
def test_processes_and_ranges_do_not_matter(top1000, tmp_path):
    _convert(top1000, tmp_path / "out")
    tokenizer = fetch_tokenizer("embedded:mono")
    settings = ExampleSettings("mono", InputLimits("original", 64, 512), tokenizer.special)
    conversion = Conversion(settings, "embedded:mono", RELEVANT, 2, tmp_path, 1 << 14)
    convert_examples([str(top1000)], tmp_path / "two", "tfrecord", conversion, 0, SILENT)
    for name in ("dataset_dev.tf", "query_doc_ids_dev.txt"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_ranges_that_are_sorted_in_several_pieces_do_not_matter(top1000, tmp_path, monkeypatch):
    """A compressed file is one range of any size."""
    _convert(top1000, tmp_path / "out")
    monkeypatch.setattr("contrib.tensorflow2019.examples.sources._BATCH_TEXTS", 7)
    (tmp_path / "packed").mkdir()
    packed = tmp_path / "packed" / "top1000.dev.tsv.gz"
    packed.write_bytes(gzip.compress(top1000.read_bytes()))
    (part,) = list_units(CorpusConfig(path=str(packed), format="top1000"), 1 << 12)
    write_query_ids(str(tmp_path), [Topic(query_id, text) for query_id, text in QUERIES.items()])
    assert ScanPart(part, str(tmp_path), 2, "embedded:mono", 0).scan().count == 0
    with pa.memory_map(scan_path(str(tmp_path), 0)) as source:
        assert pa.ipc.open_file(source).num_record_batches == 2 * (10 + 1)
    _convert(packed, tmp_path / "two")
    assert (tmp_path / "two/dataset_dev.tf").read_bytes() == (
        tmp_path / "out/dataset_dev.tf"
    ).read_bytes()


@pytest.mark.parametrize(
    "settings",
    slow_but(1, [{}, {"schema": "car"}, {"schema": "duo", "docs": 3}]),
    ids=["mono", "car", "duo"],
)
def test_tfrecord_through_parquet_has_the_same_bytes(top1000, tmp_path, settings):
    examples = _convert(top1000, tmp_path / "out", **settings)
    _convert(tmp_path / "out/dataset_dev.tf", tmp_path / "parquet", to="parquet")
    assert pq.read_table(tmp_path / "parquet/dataset_dev.parquet").to_pylist() == examples
    _convert(tmp_path / "parquet/dataset_dev.parquet", tmp_path / "back")
    for name in ("dataset_dev.tf", "query_doc_ids_dev.txt"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_damaged_record_is_left_out_with_its_ids(top1000, tmp_path):
    examples = _convert(top1000, tmp_path / "out")
    path = tmp_path / "out/dataset_dev.tf"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"record 0 .*byte 0: "):
        _convert(path, tmp_path / "none")
    assert _convert(path, tmp_path / "rest", max_bad_rows=1) == examples[1:]


_GOOD = {"query_ids": [101, 5, 102], "doc_ids": [7, 102], "label": [0]}
_GOOD_DUO = {"input_ids": [101, 5, 102, 7, 102], "segment_ids": [0, 0, 0, 1, 2], "label": [0]}


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("label", [], "'label' .* 0 "),
        ("label", [0, 1], "'label' .* 2 "),
        ("label", [2], " 2 .*'label'"),
        ("doc_ids", [7, 2**31 + 5], " 2147483653 .*'doc_ids'"),
        ("doc_ids", [7, 2**63 - 1], "'doc_ids'"),
        ("query_ids", [101, -1], " -1 .*'query_ids'"),
        ("query_ids", [101, 30_522], " 30522 .*'query_ids'"),
        ("segment_ids", [0, 0, 1, 2], "5 'input_ids' .*4 'segment_ids'"),
        ("segment_ids", [0, 0, 0, 1, 3], " 3 .*'segment_ids'"),
    ],
)
@pytest.mark.parametrize("file", ["tfrecord", "parquet"])
def test_example_that_the_original_code_cannot_have_written_is_named(
    name, values, reason, file, tmp_path
):
    path = tmp_path / "dataset_dev"
    good = _GOOD_DUO if name == "segment_ids" else _GOOD
    example = good | {name: values}
    rows = [good, good, good, example]
    # A row of a table has one label.
    if file == "tfrecord" or (name == "label" and values != [2]):
        file = "tfrecord"
        numbers = {
            name: np.array([number for row in rows for number in row[name]]) for name in example
        }
        counts = {name: np.array([len(row[name]) for row in rows]) for name in example}
        path.write_bytes(frame(encode({name: (numbers[name], counts[name]) for name in example})))
    else:
        pq.write_table(
            pa.Table.from_pylist([row | {"label": row["label"][0]} for row in rows]), path
        )
    (stored,) = stored_examples(str(path), kind_of(str(path)) or "", vocab_size=30_522)
    unit = "record" if file == "tfrecord" else "row"
    with pytest.raises(DataError, match=rf"{unit} 3 \(from 0\) .*{reason}"):
        list(stored.tables(Rejects("examples", NO_LIMIT)))


def test_tfrecord_compressed_by_tensorflow_is_read_under_any_name(top1000, tmp_path):
    examples = _convert(top1000, tmp_path / "out")
    path = tmp_path / "out/dataset_dev.tf"
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert _convert(path, tmp_path / "back") == examples


def test_ids_of_another_length_are_refused(top1000, tmp_path):
    _convert(top1000, tmp_path / "out")
    ids = tmp_path / "out/query_doc_ids_dev.txt"
    ids.write_text("".join(ids.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(DataError, match=r"59 lines.* 60 records"):
        _convert(tmp_path / "out/dataset_dev.tf", tmp_path / "back")


def test_tsv_has_a_header_and_a_line_for_each_example(top1000, tmp_path):
    examples = _convert(top1000, tmp_path / "out")
    _convert(top1000, tmp_path / "tsv", to="tsv")
    header, *lines = (tmp_path / "tsv/dataset_dev.tsv").read_text().splitlines()
    assert header == "query_id\tdoc_id\tquery_ids\tdoc_ids\tlabel"
    assert len(lines) == len(examples)
    query_id, doc_id, query_ids, doc_ids, label = lines[7].split("\t")
    assert examples[7] == {
        "query_id": query_id,
        "doc_id": doc_id,
        "query_ids": [*map(int, query_ids.split())],
        "doc_ids": [*map(int, doc_ids.split())],
        "label": int(label),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"schema": "car"}, {"schema": "duo", "docs": 3}], ids=["car", "duo"]
)
def test_tensorflow_reads_ours_and_we_read_its(top1000, tmp_path, settings):
    examples = _convert(top1000, tmp_path / "out", **settings)
    for example in examples:
        for name in ("query_id", "doc_id", "doc_id_i", "doc_id_j"):
            example.pop(name, None)
        example |= {name: [value] for name, value in example.items() if isinstance(value, int)}
    read = _by_tensorflow("read", tmp_path / "out/dataset_dev.tf")
    assert [json.loads(line) for line in read.splitlines()] == examples
    _by_tensorflow(
        "write",
        tmp_path / "dataset_dev.tf",
        "".join(f"{json.dumps(example)}\n" for example in examples),
    )
    _convert(tmp_path / "dataset_dev.tf", tmp_path / "ours")
    written = _by_tensorflow("read", tmp_path / "ours/dataset_dev.tf")
    assert [json.loads(line) for line in written.splitlines()] == examples


def _by_tensorflow(what: str, path: Path, lines: str = "") -> str:
    command = [
        str(environments.tensorflow_python()),
        "-m",
        tensorflow_examples.__name__,
        what,
        str(path),
    ]
    environ = environments.environ(PYTHONPATH=str(ROOT))
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=300, env=environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

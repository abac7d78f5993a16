"""Mining: what is a positive, a candidate and a negative, how groups are drawn, and what is left
out.
"""

import random
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.runs import read_run
from benchmarks.parts.mining import write_collection as write_car_shaped
from models.checkpoints.checkpoint import resolve_checkpoint
from models.tokenizers.bert import load_bert
from models.training.config import DataConfig, SamplingConfig, load_train_config
from models.training.data.groups import Group, GroupArrays, GroupSource, shuffled
from models.training.data.mining import mine
from models.training.data.texts import TextWriter, TokenTable
from tests.support.refusals import refuses
from tests.support.training import COLOURS, WORDS, save_tokenizer, write_collection

_MAX_TOKENS = 32
# 30 million pairs then take 3 GB; the libraries take less than 1 GB.
_BYTES_PER_PAIR = 100


class Mined(NamedTuple):
    """A source of groups of token ids, whose groups are read as texts."""

    source: GroupSource
    arrays: GroupArrays
    tokens: TokenTable
    lines: list[str]

    def text_of(self, row: int) -> str:
        return " ".join(WORDS[number] for number in self.tokens[[row]][0].as_py())

    def take(self, count: int, position: int = 0) -> list[tuple[Group[str], int]]:
        def texts(group: Group[int]) -> Group[str]:
            docs = tuple(map(self.text_of, group.docs))
            return Group(self.text_of(group.query), docs, group.relevant, group.teacher_scores)

        return [
            (texts(group), after) for group, after in islice(self.source.stream(position), count)
        ]

    def negatives(self) -> list[set[str]]:
        """The texts of each topic's negatives."""
        arrays = self.arrays
        if len(arrays.pools):
            pools = [arrays.negatives[start:end] for start, end in np.unique(arrays.pools, axis=0)]
        else:
            pools = [
                arrays.docs[(arrays.queries == query) & ~arrays.relevant[:, 0], 0]
                for query in np.unique(arrays.queries)
            ]
        return [set(map(self.text_of, pool.tolist())) for pool in pools]


def mined(data: DataConfig, sampling: SamplingConfig, folder: Path, seed: int = 0) -> Mined:
    """Mines into a folder, and reads what was written."""
    folder = folder / "mined"
    folder.mkdir(exist_ok=True)
    save_tokenizer(folder)
    writer = TextWriter(folder, load_bert(str(folder)), _MAX_TOKENS)
    arrays, lines = mine(data, sampling, None, writer)
    writer.close()
    arrays.save(folder)
    arrays = GroupArrays.load(folder)
    return Mined(GroupSource(arrays, seed, sampling.drawn), arrays, TokenTable(folder), lines)


def check_resumes(found: Mined, count: int) -> None:
    """The stream resumes at every position."""
    whole = found.take(count)
    for at in range(0, count, 7):
        group, position = whole[at]
        assert found.take(count - at - 1, position) == whole[at + 1 :], f"after {group}"


def data_config(folder: Path, **keys: object) -> DataConfig:
    found = write_collection(folder)
    for name in ("qrels", "run"):
        found[name] = str(folder / found[name])
    for name in ("corpus", "topics"):
        found[name]["path"] = str(folder / found[name]["path"])
    return DataConfig.model_validate(found | keys)


def test_triplets_give_each_positive_n_over_m_negatives(tmp_path):
    data = data_config(tmp_path)
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\nq0 0 d1 1\n")
    sampling = SamplingConfig(mode="triplets")
    found = mined(data, sampling, tmp_path)
    triplets = [group.docs for group, _ in found.take(found.source.groups_per_epoch or 0)]
    negatives = {
        positive: {n for p, n in triplets if p == positive} for positive in ("blue", "green")
    }
    assert {name: len(found) for name, found in negatives.items()} == {"blue": 2, "green": 2}
    assert not negatives["blue"] & negatives["green"]
    limited = SamplingConfig(mode="triplets", negatives=1)
    assert mined(data, limited, tmp_path).source.groups_per_epoch == 2


def test_mining_ignores_duplicates_of_positives(tmp_path):
    data = data_config(tmp_path)
    corpus = (
        (tmp_path / "corpus.jsonl")
        .read_text()
        .replace('"green"', '"BLUE "')
        .replace('"white"', '"red"')
    )
    (tmp_path / "corpus.jsonl").write_text(corpus)
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\n")
    found = mined(data, SamplingConfig(), tmp_path)
    assert found.negatives() == [{"red", "black", "gold"}]
    assert "negatives with the text of a positive, ignored: 1" in found.lines
    assert "candidates with the text of another, ignored: 1" in found.lines


def test_mining_names_unusable_topics(tmp_path):
    data = data_config(tmp_path)
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\nq1 0 d1 0\nq2 0 d2 1\n")
    rows = (tmp_path / "run.trec").read_text().splitlines()
    (tmp_path / "run.trec").write_text(
        "\n".join(row for row in rows if not row.startswith("q2 ")) + "\n"
    )
    lines = mined(data, SamplingConfig(), tmp_path).lines
    assert "topics without positives: 8 of 10 ('q1', 'q3', 'q4', ...); ignored" in lines
    assert "topics without candidates: 1 of 10 ('q2'); ignored" in lines
    strict = data.model_copy(update={"min_relevance": 2})
    with pytest.raises(PreflightError, match="positives: 10 of 10"):
        mined(strict, SamplingConfig(), tmp_path)


def test_mining_refuses_a_run_of_relevant_docs_only(tmp_path):
    data = data_config(tmp_path)
    (tmp_path / "run.trec").write_text("".join(f"q{n} Q0 d{n} 1 1.0 run\n" for n in range(10)))
    with pytest.raises(PreflightError, match="negatives: 10 of 10"):
        mined(data, SamplingConfig(), tmp_path)


def test_mining_refuses_missing_and_duplicate_docs(tmp_path):
    data = data_config(tmp_path)
    corpus = tmp_path / "corpus.jsonl"
    lines = corpus.read_text().splitlines()
    corpus.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(PreflightError, match=r"1 .*10 docs .*'d9'"):
        mined(data, SamplingConfig(), tmp_path)
    corpus.write_text("\n".join([*lines, lines[2]]) + "\n")
    with pytest.raises(PreflightError, match="'d2'"):
        mined(data, SamplingConfig(), tmp_path)


def test_mining_adds_the_teachers_scores(tmp_path):
    data = data_config(tmp_path, teacher=str(tmp_path / "teacher.trec"))
    rows = (tmp_path / "teacher.trec").read_text().splitlines()
    (tmp_path / "teacher.trec").write_text(
        "\n".join(row for row in rows if not row.startswith("q0 Q0 d1 ")) + "\n"
    )
    found = mined(data, SamplingConfig(), tmp_path)
    assert "docs without a teacher's score, ignored: 1" in found.lines
    for group, _ in found.take(10):
        negative = COLOURS.index(group.docs[1])
        assert group.teacher_scores == pytest.approx((4.0, 1 / negative if negative else 2.0))


def test_copy_of_a_positive_that_the_teacher_did_not_score_is_no_negative(tmp_path):
    data = data_config(tmp_path, teacher=str(tmp_path / "teacher.trec"))
    corpus = (tmp_path / "corpus.jsonl").read_text().replace('"green"', '"BLUE\\u200b "')
    (tmp_path / "corpus.jsonl").write_text(corpus)
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\nq0 0 d5 1\n")
    rows = (tmp_path / "teacher.trec").read_text().splitlines()
    (tmp_path / "teacher.trec").write_text(
        "\n".join(row for row in rows if not row.startswith("q0 Q0 d0 ")) + "\n"
    )
    found = mined(data, SamplingConfig(), tmp_path)
    assert found.negatives() == [{"red", "white", "black"}]
    assert "negatives with the text of a positive, ignored: 1" in found.lines
    assert "docs without a teacher's score, ignored: 2" in found.lines


def test_texts_without_a_visible_character_are_not_trained_on(tmp_path):
    data = data_config(tmp_path)
    corpus = (
        (tmp_path / "corpus.jsonl")
        .read_text()
        .replace('"blue"', '""')
        .replace('"red"', '" \\u00a0\\u200b"')
    )
    (tmp_path / "corpus.jsonl").write_text(corpus)
    topics = (tmp_path / "topics.tsv").read_text().replace("what is grass", "\u2063")
    (tmp_path / "topics.tsv").write_text(topics)
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\nq1 0 d1 1\nq8 0 d8 1\nq8 0 d0 1\n")
    found = mined(data, SamplingConfig(), tmp_path)
    assert (found.source.groups_per_epoch, found.negatives()) == (1, [{"cream", "green", "white"}])
    assert "topics whose positives have no text: 1 of 10 ('q0'); ignored" in found.lines
    assert "topics without a text: 1 of 10 ('q1'); ignored" in found.lines
    assert "positives without a text, ignored: 2" in found.lines
    assert "candidates without a text, ignored: 4" in found.lines


@pytest.mark.parametrize("mode", ["balanced", "natural"])
def test_topics_of_one_text_share_what_is_relevant(mode, tmp_path):
    data = data_config(tmp_path)
    topics = (tmp_path / "topics.tsv").read_text().replace("what is grass", "What  is SKY")
    (tmp_path / "topics.tsv").write_text(topics)
    # d2 is relevant to the text of q0, as a topic that is not in the run has it.
    (tmp_path / "topics.tsv").write_text(topics + "other\twhat is sky\n")
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\nq1 0 d1 1\nother 0 d2 1\nq2 0 d2 1\n")
    found = mined(data, SamplingConfig(mode=mode), tmp_path)
    assert found.negatives() == [
        {"white", "black", "gold"},
        {"white", "black", "gold", "teal"},
        {"white", "black", "gold", "teal", "pink"},
    ]
    line = (
        "topics with the text of another: 2 of 11 ('q0', 'q1'); what is relevant to one is no "
        "negative of another"
    )
    assert line in found.lines
    assert "negatives with the text of a positive, ignored: 3" in found.lines


def test_topics_with_few_negatives_are_counted(tmp_path):
    data = data_config(tmp_path)
    (tmp_path / "run.trec").write_text(
        "q0 Q0 d1 1 1 r\nq1 Q0 d2 1 3 r\nq1 Q0 d3 2 2 r\nq1 Q0 d4 3 1 r\n"
    )
    found = mined(data, SamplingConfig(negatives=3), tmp_path)
    expected = (
        "topics with fewer than 3 negatives: 1 of 2, the fewest 1; theirs are drawn "
        "several times in a group"
    )
    assert expected in found.lines
    assert not any("fewer than" in line for line in mined(data, SamplingConfig(), tmp_path).lines)


def test_natural_sampling_counts_topics_without_a_positive(tmp_path):
    data = data_config(tmp_path)
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\nq1 0 d9 1\n")
    found = mined(data, SamplingConfig(mode="natural"), tmp_path)
    assert "topics whose candidates are all negatives: 1 of 2" in found.lines
    (tmp_path / "qrels.txt").write_text("q1 0 d9 1\n")
    with pytest.raises(PreflightError, match=r"sampling\.mode natural"):
        mined(data, SamplingConfig(mode="natural"), tmp_path)


def write_random_collection(folder: Path, seed: int) -> DataConfig:
    """Topics with positives that are retrieved or not, and docs that share their texts; four files
    of qrels.
    """
    dice = random.Random(seed)
    data = data_config(folder)
    texts = {f"d{n}": " ".join(dice.choices(COLOURS, k=dice.randint(1, 2))) for n in range(40)}
    (folder / "corpus.jsonl").write_text(
        "".join(f'{{"id": "{d}", "contents": "{t}"}}\n' for d, t in texts.items())
    )
    rows, qrels = [], ""
    for topic in range(10):
        ranked = dice.sample(sorted(texts), dice.randint(0, 12))
        rows += [f"q{topic} Q0 {doc} {rank} {-rank} run\n" for rank, doc in enumerate(ranked, 1)]
        for doc in dice.sample(sorted(texts), dice.randint(0, 4)) + ranked[3:5]:
            qrels += (
                "" if f"q{topic} 0 {doc} " in qrels else f"q{topic} 0 {doc} {dice.randint(0, 2)}\n"
            )
    lines = qrels.splitlines(keepends=True)
    for fold in range(4):
        (folder / f"fold-{fold}.qrels").write_text("".join(lines[fold::4]) or "none 0 d0 1\n")
    dice.shuffle(rows)
    (folder / "run.trec").write_text("".join(rows))
    return data.model_copy(update={"qrels": f"{folder}/fold-*.qrels"})


def plain_groups(data: DataConfig, sampling: SamplingConfig, seed: int) -> Iterator[Group]:
    """The groups by dictionaries, one topic after the other."""
    folder = Path(data.corpus.path).parent
    texts = {}
    for line in (folder / "corpus.jsonl").read_text().splitlines():
        texts[line.split('"')[3]] = line.split('"')[7]
    relevance: dict[str, dict[str, int]] = {}
    for fold in range(4):
        for line in (folder / f"fold-{fold}.qrels").read_text().splitlines():
            query_id, _, doc_id, level = line.split()
            relevance.setdefault(query_id, {})[doc_id] = int(level)
    ranked = read_run(str(folder / "run.trec"), ties="rank").order
    units = []
    for topic, line in enumerate((folder / "topics.tsv").read_text().splitlines()):
        query_id = f"q{topic}"
        positives = [doc_id for doc_id, level in relevance.get(query_id, {}).items() if level >= 1]
        seen: set[str] = set()
        kept = []
        for doc_id in ranked.get(query_id, [])[sampling.ranks[0] - 1 : sampling.ranks[1]]:
            copy = doc_id not in positives and texts[doc_id] in {texts[each] for each in positives}
            if not copy and texts[doc_id] not in seen:
                seen.add(texts[doc_id])
                kept.append(doc_id)
        negatives = [doc_id for doc_id in kept if doc_id not in positives]
        if positives and negatives:
            each = kept if sampling.mode == "natural" else positives
            units += [(line.split("\t")[1], positives, negatives, doc_id) for doc_id in each]
    for after, number in shuffled(len(units), seed):
        epoch = (after - 1) // len(units)
        query, positives, negatives, doc_id = units[number]
        doc_ids = [doc_id]
        if sampling.mode == "balanced":
            rng = np.random.default_rng([seed, epoch, number])
            count = sampling.negatives or 1
            doc_ids += [
                negatives[at]
                for at in rng.choice(len(negatives), count, replace=len(negatives) < count)
            ]
        relevant = tuple(each in positives for each in doc_ids)
        yield Group(query, tuple(texts[each] for each in doc_ids), relevant)


@pytest.mark.parametrize(
    "sampling", [{}, {"negatives": 3, "ranks": [2, 8]}, {"mode": "natural", "ranks": [1, 10]}]
)
@pytest.mark.parametrize("seed", range(6))
def test_mining_draws_the_groups_of_a_plain_loop(sampling, seed, tmp_path):
    data, settings = (
        write_random_collection(tmp_path, seed),
        SamplingConfig.model_validate(sampling),
    )
    found = mined(data, settings, tmp_path, seed)
    count = 2 * (found.source.groups_per_epoch or 0) + 5
    assert [group for group, _ in found.take(count)] == list(
        islice(plain_groups(data, settings, seed), count)
    )
    check_resumes(found, count)


def peak_bytes(folder: Path, pairs: int) -> int:
    """The peak of Python's and NumPy's memory while TREC CAR's shape is mined."""
    config = load_train_config(str(write_car_shaped(folder / str(pairs), pairs)), "mono")
    tokenizer = load_bert(resolve_checkpoint("embedded:mono", "mono").folder)
    # The first time fills the tokenizer's caches of words, which have bounds of their own.
    for _ in range(2):
        tracemalloc.start()
        mine(config.data, config.sampling, None, TextWriter(folder, tokenizer, _MAX_TOKENS))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.slow
def test_mining_takes_a_bounded_memory_for_each_pair(tmp_path):
    # Fewer pairs would be read at once, as one block of the corpus.
    few, many = (peak_bytes(tmp_path, pairs) for pairs in (30_000, 90_000))
    assert (many - few) / 60_000 < _BYTES_PER_PAIR


@pytest.mark.parametrize(
    ("score", "ranks"),
    [
        (lambda topic, rank: 7 - rank, True),
        (lambda topic, rank: rank, True),
        (lambda topic, rank: -rank - topic, True),
        (lambda topic, rank: 1 / (60 + rank), True),
        (lambda topic, rank: 9.5 - rank - 0.1 * topic, False),
        (lambda topic, rank: float(rank < 2 + topic % 2), False),
    ],
    ids=["down", "up", "shifted", "reciprocal", "scores", "grades"],
)
def test_teachers_ranks_are_refused(score, ranks, tmp_path):
    data = data_config(tmp_path, teacher=str(tmp_path / "teacher.trec"))
    rows = map(str.split, (tmp_path / "run.trec").read_text().splitlines())
    taught = [f"{row[0]} Q0 {row[2]} 1 {score(int(row[0][1:]), int(row[3]))} t" for row in rows]
    (tmp_path / "teacher.trec").write_text("\n".join(taught) + "\n")
    if not ranks:
        assert mined(data, SamplingConfig(), tmp_path).source.groups_per_epoch
        return
    with pytest.raises(PreflightError, match=r"teacher\.trec .*ranks"):
        mined(data, SamplingConfig(), tmp_path)


@pytest.mark.parametrize("rank", [lambda rank: rank, lambda rank: rank**2 + rank % 3])
def test_teacher_of_three_columns_has_no_scores(rank, tmp_path):
    data = data_config(tmp_path, teacher=str(tmp_path / "teacher.tsv"))
    rows = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    lines = [f"{row[0]}\t{row[2]}\t{rank(int(row[3]))}\n" for row in rows]
    (tmp_path / "teacher.tsv").write_text("".join(lines))
    with refuses(PreflightError, "column-missing", file=data.teacher):
        mined(data, SamplingConfig(), tmp_path)


def test_teacher_between_0_and_1_is_said(tmp_path):
    """Such as probabilities, whose differences teach next to nothing where log-odds are
    expected.
    """
    for scale, lines in ((0.01, 1), (1.0, 0)):
        data = data_config(
            tmp_path / str(scale), teacher=str(tmp_path / str(scale) / "teacher.trec")
        )
        rows = [
            line.split() for line in (tmp_path / str(scale) / "run.trec").read_text().splitlines()
        ]
        taught = [
            f"{row[0]} Q0 {row[2]} 1 "
            f"{scale * (20.5 - int(row[3]) ** 1.1 - len(row[2]) * int(row[0][1:]) % 3)} t"
            for row in rows
        ]
        (tmp_path / str(scale) / "teacher.trec").write_text("\n".join(taught) + "\n")
        found = mined(data, SamplingConfig(), tmp_path / str(scale)).lines
        assert len([line for line in found if "between 0 and 1" in line]) == lines


def test_scores_in_the_other_direction_are_said(tmp_path):
    """Of a teacher: distances, or logits of not relevant; of a run: its best docs would be the
    worst.
    """
    data = data_config(tmp_path, teacher=str(tmp_path / "teacher.trec"))
    qrels = {tuple(line.split()[::2]) for line in (tmp_path / "qrels.txt").read_text().splitlines()}
    rows = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    for sign, lines in ((1, 0), (-1, 1)):
        taught = [
            f"{r[0]} Q0 {r[2]} 1 {sign * 9.5 * ((r[0], r[2]) in qrels) + int(r[0][1:]) / 7} t"
            for r in rows
        ]
        (tmp_path / "teacher.trec").write_text("\n".join(taught) + "\n")
        found = mined(data, SamplingConfig(), tmp_path).lines
        assert len([line for line in found if "upside down" in line]) == lines
        assert not [line for line in found if "rank disagrees" in line]
    (tmp_path / "run.trec").write_text("".join(f"{r[0]} Q0 {r[2]} {r[3]} {r[3]} t\n" for r in rows))
    found = mined(data, SamplingConfig(), tmp_path).lines
    assert len([line for line in found if "rank disagrees" in line]) == 1

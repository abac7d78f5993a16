"""The Beam cascade against the papers' loop in memory, on real collections."""

import html.parser
import tarfile
from pathlib import Path

import pytest

from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.stages.plan import Plan
from beamrank.storage import files as storage
from pipelines.output.run_files import write_run_files
from pipelines.output.run_names import RunFile
from tests.support.cascades import read_trec, run_here, write_config
from tests.support.reference import Reference, cascade, disagreements, sigmoid

K0, K1, HITS = 6, 4, 10
TOLERANCE = 1e-4


class _Text(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.data: list[str] = []

    def handle_data(self, data: str) -> None:
        self.data.append(data)


def cacm_corpus(folder: Path) -> dict[str, str]:
    """CACM as the collection's notes say: the HTML parser's data, white space collapsed."""
    corpus = {}
    with tarfile.open(folder / "cacm.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                parser = _Text()
                parser.feed(file.read().decode("utf-8", "replace"))
                corpus[Path(member.name).stem] = " ".join(" ".join(parser.data).split())
    return corpus


def car_collection(folder: Path, target: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The paragraphs of TREC CAR test200, and its sections as topics."""
    with tarfile.open(folder / "trec_car_test200.tar.gz") as archive:
        for name in ("train.test200.cbor.paragraphs", "train.test200.cbor.hierarchical.qrels"):
            member = archive.extractfile(f"trec_car_test200/{name}")
            assert member is not None
            (target / name).write_bytes(member.read())
    corpus = CorpusConfig(path=str(target / "train.test200.cbor.paragraphs"), format="car")
    docs = {
        doc_id: text
        for unit in list_units(corpus)
        for batch in read_unit(unit)
        for doc_id, text in zip(batch.doc_ids, batch.texts, strict=True)
    }
    qrels = (target / "train.test200.cbor.hierarchical.qrels").read_text()
    query_ids = sorted({line.split()[0] for line in qrels.splitlines()})
    (target / "car.topics").write_text("".join(f"{query_id}\n" for query_id in query_ids))
    topics = read_topics(TopicsConfig(path=str(target / "car.topics"), format="car"))
    return docs, dict(topics)


def check_against_the_papers(plan: Plan, topics: dict[str, str], corpus: dict[str, str], reference: Reference) -> int:
    """Compares every query's log-odds and orders; returns how many pairs and triples were compared."""
    runs = {name: read_trec(Path(plan.output) / "runs" / f"{name}.trec") for name in ("bm25", "mono", "duo-sum")}
    mono = _mono_log_odds(plan)
    duo = _duo_log_odds(plan)
    compared = 0
    for query_id, text in topics.items():
        candidates = runs["bm25"].get(query_id, [])
        _, expected, _, expected_duo = cascade(text, candidates, corpus, reference, K0, K1)
        assert {key: mono[query_id, *key] for key in expected} == pytest.approx(expected, abs=TOLERANCE)
        head = runs["mono"].get(query_id, [])[: len(expected)]
        assert set(head) == {doc_id for (doc_id,) in expected}
        assert disagreements(head, {doc_id: expected[doc_id,] for doc_id in head}, 2 * TOLERANCE) == []
        assert runs["mono"].get(query_id, [])[len(expected) :] == candidates[K0:]
        compared += len(expected)
        admitted = head[:K1]
        assert set(admitted) == {first for first, _ in expected_duo} or len(admitted) < 2
        assert {key: duo[query_id, *key] for key in expected_duo} == pytest.approx(expected_duo, abs=TOLERANCE)
        compared += len(expected_duo)
        final = runs["duo-sum"].get(query_id, [])
        total = {
            first: sum(sigmoid(expected_duo[first, second]) for second in admitted if second != first)
            for first in admitted
        }
        assert set(final[: len(admitted)]) == set(admitted)
        assert disagreements(final[: len(admitted)], total, 2 * TOLERANCE * K1) == []
        assert final[len(admitted) :] == runs["mono"].get(query_id, [])[len(admitted) :]
    return compared


def _mono_log_odds(plan: Plan) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    manifest = plan.sealed("mono")
    assert manifest is not None
    for receipt in manifest.receipts:
        for row in plan.folder("mono").read_part(receipt).to_pylist():
            found[row["query_id"], row["doc_id"]] = row["score"]
    return found


def _duo_log_odds(plan: Plan) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    manifest = plan.sealed("duo")
    assert manifest is not None
    for receipt in manifest.receipts:
        for row in plan.folder("duo").read_part(receipt).to_pylist():
            count = len(row["doc_ids"])
            for place, score in enumerate(row["scores"]):
                first, second = divmod(place, count)
                found[row["query_id"], row["doc_ids"][first], row["doc_ids"][second]] = score
    return found


def _overrides() -> list[str]:
    return [f"bm25.k={HITS}", f"mono.k={K0}", f"duo.k={K1}"]


@pytest.mark.data
@pytest.mark.jvm
@pytest.mark.parametrize("collection", ["cacm", pytest.param("car", marks=pytest.mark.slow)])
def test_the_cascade_equals_the_papers_loop(
    collection: str, shared_data: Path, tmp_path: Path, mono_checkpoint: str, duo_checkpoint: str
) -> None:
    if collection == "cacm":
        corpus = cacm_corpus(shared_data / "cacm")
        topics = dict(read_topics(TopicsConfig(path=str(shared_data / "cacm/topics.cacm.txt"), format="trec")))
    else:
        corpus, topics = car_collection(shared_data, tmp_path)
        topics = dict(list(topics.items())[::31])
    path = write_config(tmp_path, corpus, topics, mono_checkpoint, duo_checkpoint)
    plan, _ = run_here(path, tmp_path / "out", _overrides())
    reference = Reference(mono_checkpoint, duo_checkpoint)
    assert check_against_the_papers(plan, topics, corpus, reference) > 500


@pytest.mark.jvm
def test_the_cascade_equals_the_papers_loop_on_the_demo(
    config_path: Path,
    tmp_path: Path,
    corpus: dict[str, str],
    topics: dict[str, str],
    mono_checkpoint: str,
    duo_checkpoint: str,
) -> None:
    plan, _ = run_here(config_path, tmp_path / "out", _overrides())
    reference = Reference(mono_checkpoint, duo_checkpoint)
    assert check_against_the_papers(plan, topics, corpus, reference) > 50


@pytest.mark.jvm
@pytest.mark.parametrize("rule", ["original", "paper"])
def test_the_truncation_rule_is_in_the_plan_and_in_the_parts(config_path: Path, tmp_path: Path, rule: str) -> None:
    plan, _ = run_here(config_path, tmp_path / "out", [f"input.truncation={rule}", "mono.k=1", "duo.k=1"])
    for name in ("mono", "duo"):
        manifest = plan.finished(name)
        assert manifest is not None
        assert plan.stage(name).keys["truncation"] == rule
        assert plan.folder(name).read_part(manifest.receipts[0]).schema.metadata[b"truncation"] == rule.encode()
        assert {"truncated_queries", "truncated_docs"} <= manifest.receipts[0].counts.keys()


@pytest.mark.jvm
def test_shards_change_neither_scores_nor_order(config_path: Path, tmp_path: Path) -> None:
    plans = [run_here(config_path, tmp_path / str(shards), [f"shards={shards}"])[0] for shards in (1, 3, 16)]
    scores = [(_mono_log_odds(plan), _duo_log_odds(plan)) for plan in plans]
    for mono, duo in scores[1:]:
        assert mono == pytest.approx(scores[0][0], abs=TOLERANCE)
        assert duo == pytest.approx(scores[0][1], abs=TOLERANCE, nan_ok=True)
    orders = [read_trec(tmp_path / str(shards) / "runs/mono.trec") for shards in (1, 3, 16)]
    for order in orders[1:]:
        assert set(order) == set(orders[0])
        for query_id, doc_ids in order.items():
            wanted = {doc_id: scores[0][0][query_id, doc_id] for doc_id in doc_ids[:8]}
            assert disagreements(doc_ids[:8], wanted, 2 * TOLERANCE) == []


@pytest.mark.jvm
def test_a_smaller_k1_comes_from_the_stored_pairs(config_path: Path, tmp_path: Path) -> None:
    """`aggregate --k1 2` is what a run with duo.k 2 writes."""
    plan, config = run_here(config_path, tmp_path / "three")
    run_here(config_path, tmp_path / "two", ["duo.k=2"])
    (written,) = write_run_files(plan, config, [RunFile("duo", "sum", k1=2)]).values()
    assert storage.name(written) == "duo-sum-k2.trec"
    # Batches differ, and with them the last bits of the scores.
    assert read_trec(Path(written)) == read_trec(tmp_path / "two/runs/duo-sum.trec")

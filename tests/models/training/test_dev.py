"""The dev run of a training: what it measures, and what it says before the first step."""

import pytest

from beamrank.errors import ConfigError, PreflightError
from models.training.session import plan_training
from tests.models.training.test_session import DEV, finish
from tests.models.training.test_session import dev_config as dev_config
from tests.support.training import make_session, save_start, write_collection, write_train_config


def test_dev_run_of_other_topics_is_refused(tmp_path):
    write_collection(tmp_path / "other")
    (tmp_path / "other" / "topics.tsv").write_text("x1\twhat is it\n")
    dev = DEV | {"topics": {"path": "other/topics.tsv", "format": "tsv"}}
    config = write_train_config(tmp_path, save_start(tmp_path / "start"), dev=dev)
    with pytest.raises(PreflightError, match=r"run\.trec"):
        make_session(config, "mono")


@pytest.mark.parametrize("measure", ["num_rel", "num_q", "num_ret", "NumRet(rel=1)", "Judged@10"])
def test_dev_measure_that_counts_is_refused(measure, dev_config):
    with pytest.raises(ConfigError, match=r"dev\.measure "):
        make_session(dev_config, "mono", [f"dev.measure={measure}"])


def test_dev_measure_that_sees_no_order_is_refused(dev_config, tmp_path):
    with pytest.raises(PreflightError, match=r"R@1000 is 1\.0000 .*100 candidates"):
        make_session(dev_config, "mono", ["dev.measure=R@1000"])
    with pytest.raises(PreflightError, match=r"RR@3 is 0\.0000 .*3 candidates"):
        make_session(dev_config, "mono", ["dev.k=3", "dev.measure=RR@3"])
    # Measured once, it chooses nothing.
    once = make_session(dev_config, "mono", ["dev.measure=R@1000", "dev.every_steps=40"])
    assert once.dev is not None
    assert not once.dev.sees_order()


@pytest.mark.slow
def test_dev_topics_that_are_trained_on_are_said(dev_config, tmp_path):
    topics = (tmp_path / "topics.tsv").read_text().splitlines()
    others = [line.upper().replace("Q", "x", 1) for line in topics[:2]] + [
        "x2\twhat is coal or snow"
    ]
    (tmp_path / "dev.tsv").write_text("\n".join(others) + "\n")
    (tmp_path / "dev.qrels").write_text("".join(f"x{n} 0 d{n} 1\n" for n in range(3)))
    (tmp_path / "dev.trec").write_text(
        "".join(f"x{n} Q0 d{d} {d + 1} {-d} r\n" for n in range(3) for d in range(4))
    )
    files = [
        "dev.topics.path=dev.tsv",
        "dev.qrels=dev.qrels",
        "dev.run=dev.trec",
        "optimizer.steps=3",
    ]
    session = make_session(dev_config, "mono", files)
    line = (
        "topics of the dev run that are also trained on: 2 of 3 ('x0', 'x1'), so its measure "
        "is better than for new"
    )
    line += " topics"
    assert line in session.lines()
    assert line in plan_training(session)["notes"]
    finish(session)
    assert f"- {line}\n" in (tmp_path / "out/README.md").read_text()


def test_dev_topics_count_where_the_run_has_them(dev_config, tmp_path):
    rows = (tmp_path / "run.trec").read_text().splitlines(keepends=True)
    (tmp_path / "dev.trec").write_text("".join(row for row in rows if not row.startswith("q0 ")))
    for most, topics in ((1, ["q1"]), (2, ["q1", "q2"])):
        options = ["dev.run=dev.trec", f"dev.max_topics={most}", "dev.measure=AP"]
        dev = make_session(dev_config, "mono", options).dev
        assert dev is not None
        assert (list(dev.qrels.relevance), dev.first_stage()) == (topics, pytest.approx(0.25))


def test_dev_run_says_what_it_lacks(dev_config, tmp_path):
    rows = (tmp_path / "run.trec").read_text().splitlines(keepends=True)
    # The scores are in another direction than the ranks, two topics have no row, one no text, one
    # doc no text.
    asked = (row.split() for row in rows if row.split()[0] not in ("q0", "q1"))
    (tmp_path / "dev.trec").write_text(
        "".join(f"{row[0]} Q0 {row[2]} {row[3]} {row[3]} r\n" for row in asked)
    )
    (tmp_path / "dev.tsv").write_text(
        (tmp_path / "topics.tsv").read_text().replace("what is milk", "\u200b")
    )
    (tmp_path / "dev.jsonl").write_text(
        (tmp_path / "corpus.jsonl").read_text().replace('"gold"', '" "')
    )
    files = [
        "dev.run=dev.trec",
        "dev.topics.path=dev.tsv",
        "dev.corpus.path=dev.jsonl",
        "dev.corpus.format=jsonl",
    ]
    dev = make_session(dev_config, "mono", files).dev
    assert dev is not None
    lines = dev.lines
    assert [line.split(":")[0] for line in lines] == [
        "dev run, judged topics that the run does not have, which count as 0",
        "dev run, topics without a text",
        "dev run, candidates without a text",
        "dev.run",
    ]
    assert [line.rsplit(": ")[-1] for line in lines[:3]] == ["2 of 10", "1 of 10", "1 of 10"]


def test_dev_measure_may_have_the_name_of_trec_eval(tmp_path):
    config = write_train_config(
        tmp_path, save_start(tmp_path / "start"), dev=DEV | {"measure": "recip_rank"}
    )
    session = make_session(config, "mono")
    assert session.dev is not None
    assert session.dev.first_stage() == pytest.approx(0.25)
    with pytest.raises(ConfigError, match="P@5, P@10"):
        make_session(config, "mono", ["dev.measure=P.5,10"])


def test_folds_are_either_trained_on_or_measured(tmp_path):
    config = write_train_config(
        tmp_path, save_start(tmp_path / "start"), dev=DEV, folds={"count": 2, "held_out": 0}
    )
    measured = []
    for held_out in range(2):
        session = make_session(config, "mono", [f"folds.held_out={held_out}"])
        assert session.dev is not None
        measured.append(set(session.dev.qrels.relevance))
        assert session.source.groups_per_epoch == 10 - len(measured[-1])
    assert sorted(measured[0] | measured[1]) == sorted(f"q{number}" for number in range(10))
    assert not measured[0] & measured[1]
    assert all(measured)
    with pytest.raises(ConfigError, match=r"held_out 2 .*0 to 1"):
        make_session(config, "mono", ["folds.held_out=2"])

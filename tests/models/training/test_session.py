import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from beamrank.errors import ConfigError, DataError, PreflightError
from beamrank.notes import SILENT, Silent
from models.checkpoints.checkpoint import input_warnings, resolve_checkpoint
from models.tokenizers.bert import BertTokenizer
from models.training.report_section import Row, TrainingRecord, read_training
from models.training.session import Session, plan_training
from models.training.trainer import train
from tests.support.progress import RecordedProgress
from tests.support.services.hub import served_hub
from tests.support.tiers import slow_but
from tests.support.training import (
    make_session,
    save_start,
    stop_after,
    write_collection,
    write_train_config,
)

DEV = {
    "topics": {"path": "topics.tsv", "format": "tsv"},
    "qrels": "qrels.txt",
    "run": "run.trec",
    "every_steps": 10,
}

# At the usual rate of .003 the loss swings, and rounding decides where it ends.
_LEARN = [
    *("optimizer.steps=150", "optimizer.batch_size=20", "optimizer.dropout=0"),
    "optimizer.learning_rate=0.001",
]


@pytest.fixture
def config(tmp_path) -> Path:
    return write_train_config(tmp_path, save_start(tmp_path / "start"))


@pytest.fixture
def dev_config(tmp_path):
    return write_train_config(tmp_path, save_start(tmp_path / "start"), dev=DEV)


def finish(session: Session) -> list[str]:
    """Trains to the end."""
    told = RecordedProgress()
    assert train(session, lambda: False, told, "beamrank train").finished
    return told.notes


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / "model.safetensors")


def rows(output: Path, name: str) -> list[list[str]]:
    with open(output / "training" / name, newline="") as file:
        return list(csv.reader(file))


def assert_same(one: Path, other: Path) -> None:
    """Bit for bit: the weights, and every step's loss and learning rate."""
    assert all(torch.equal(weights(one)[name], weight) for name, weight in weights(other).items())
    assert rows(one, "curve.csv") == rows(other, "curve.csv")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["duo", "mono"])
def test_training_resumes_to_the_same_bits(kind, config, tmp_path):
    steps = ["optimizer.steps=15"]
    finish(make_session(config, kind, steps, tmp_path / "whole"))
    for done, stop in ((1, 1), (8, 7)):
        progress = train(
            make_session(config, kind, steps, tmp_path / "parts"), stop_after(stop), SILENT, ""
        )
        assert (progress.step, progress.finished) == (done, False)
    assert "resuming after step 8" in finish(make_session(config, kind, steps, tmp_path / "parts"))
    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert len(rows(tmp_path / "whole", "curve.csv")) == 16


def test_killed_training_resumes_from_its_last_state(config, tmp_path):
    """The state of step 9 with curves up to step 12, as a kill -9 leaves them."""
    steps = ["optimizer.steps=15"]
    finish(make_session(config, "mono", steps, tmp_path / "whole"))
    killed = tmp_path / "killed"
    train(make_session(config, "mono", steps, killed), stop_after(9), SILENT, "")
    with open(killed / "training" / "curve.csv", "a") as file:
        file.write("10,0.5,0.001\n11,0.5,0.001\n12,0.4")
    (killed / "training" / "checkpoint-12").mkdir()
    assert "resuming after step 9" in finish(make_session(config, "mono", steps, killed))
    assert_same(tmp_path / "whole", killed)
    assert sorted(path.name for path in (killed / "training").glob("*point-*")) == ["checkpoint-15"]


@pytest.mark.slow
def test_state_that_lost_its_record_is_not_resumed_in_silence(config):
    train(make_session(config, "mono"), stop_after(6), SILENT, "beamrank train")
    for record in (config.parent / "out/training").glob("checkpoint-*/state.json"):
        record.unlink()
    told = RecordedProgress()
    train(make_session(config, "mono"), stop_after(3), told, "beamrank train")
    assert any("the training starts over" in note for note in told.notes)


class Killed(Silent):
    """Raises in the 13th step, as a process that is killed."""

    def update(self, done: int, total: int | None, unit: str) -> None:
        if done == 13:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_dev_measurement_saves_a_state_with_its_model(dev_config, tmp_path):
    finish(make_session(dev_config, "mono", output=tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        train(
            make_session(dev_config, "mono", output=tmp_path / "killed"),
            lambda: False,
            Killed(),
            "",
        )
    again = make_session(dev_config, "mono", output=tmp_path / "killed")
    assert (again.before.step, again.before.best_step) == (10, 10)
    finish(again)
    assert_same(tmp_path / "whole", tmp_path / "killed")
    assert rows(tmp_path / "whole", "dev.csv") == rows(tmp_path / "killed", "dev.csv")


@pytest.mark.slow
def test_accumulation_and_checkpointing_give_the_same_weights(config, tmp_path):
    plain = ["optimizer.dropout=0", "optimizer.steps=5"]
    finish(make_session(config, "mono", plain, tmp_path / "plain"))
    overrides = [*plain, "optimizer.accumulation=2", "optimizer.gradient_checkpointing=true"]
    finish(make_session(config, "mono", overrides, tmp_path / "sparing"))
    for name, weight in weights(tmp_path / "plain").items():
        torch.testing.assert_close(weights(tmp_path / "sparing")[name], weight, atol=2e-5, rtol=0)


@pytest.mark.slow
def test_head_of_one_logit_is_kept_by_default(config, tmp_path):
    """cross-encoder/ms-marco-* have one logit."""
    finish(make_session(config, "mono", ["labels=1"], tmp_path / "one"))
    one = {"start": str(tmp_path / "one"), "optimizer.learning_rate": 1e-12}
    options = [f"{key}={value}" for key, value in one.items()]
    kept = make_session(config, "mono", options, tmp_path / "kept")
    assert (kept.labels, kept.lines()) == (
        1,
        make_session(config, "mono", output=tmp_path / "plain").lines(),
    )
    finish(kept)
    head = weights(tmp_path / "one")["classifier.weight"]
    assert torch.allclose(weights(tmp_path / "kept")["classifier.weight"], head, atol=1e-6)
    new = make_session(config, "mono", [*options, "labels=2"], tmp_path / "new")
    assert any("the head is new" in line and "labels: 1 keeps it" in line for line in new.lines())
    assert any("the head is new" in line for line in plan_training(new)["notes"])
    finish(new)
    assert (
        "| start | one; its head of 1 label is not used |"
        in (tmp_path / "new/README.md").read_text()
    )


@pytest.mark.slow
def test_card_names_files_without_a_path_of_the_machine(config, tmp_path):
    (tmp_path / "qrels.tsv").write_text(
        "topic\tdoc\tlabel\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(10))
    )
    columns = "columns: {query_id: topic, doc_id: doc, relevance: label}"
    options = ["optimizer.steps=3", f"data.qrels={{path: {tmp_path}/qrels.tsv, {columns}}}"]
    finish(make_session(config, "mono", options, tmp_path / "out"))
    card = (tmp_path / "out/README.md").read_text()
    assert "base_model" not in card
    assert "| start | start |" in card
    assert "- qrels: `qrels.tsv`" in card
    assert str(tmp_path) not in card
    assert ModelCard.load(tmp_path / "out/README.md").data.pipeline_tag == "text-ranking"
    with served_hub() as hub:
        hub.upload("someone/ranker", tmp_path / "out", tmp_path / "hub")
        found = hub.repositories["someone/ranker"]
    assert found["README.md"].decode() == card
    assert found.keys() >= {"config.json", "model.safetensors", "tokenizer.json"}


@pytest.mark.slow
def test_seed_decides_the_curve(config, tmp_path):
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        finish(make_session(config, "mono", ["optimizer.steps=5", f"seed={seed}"], tmp_path / name))
    assert_same(tmp_path / "first", tmp_path / "again")
    assert rows(tmp_path / "first", "curve.csv") != rows(tmp_path / "other", "curve.csv")


def learnt(output: Path) -> float:
    """The loss of the last ten steps as a share of that of the first ten."""
    losses = [float(row[1]) for row in rows(output, "curve.csv")[1:]]
    return sum(losses[-10:]) / sum(losses[:10])


@pytest.mark.slow
def test_bfloat16_training_learns(config, tmp_path):
    session = make_session(config, "mono", [*_LEARN, "dtype=bfloat16"], tmp_path / "out")
    finish(session)
    assert learnt(tmp_path / "out") < 0.5
    assert {weight.dtype for weight in weights(tmp_path / "out").values()} == {torch.float32}


@pytest.mark.parametrize(
    ("fast", "dtype", "attention"),
    [("bfloat16", torch.bfloat16, "eager"), ("float32", torch.float32, "sdpa")],
)
def test_auto_dtype_is_what_the_cpu_is_fast_at(fast, dtype, attention, config, monkeypatch):
    monkeypatch.setattr(
        "models.training.session.resolve_dtype",
        lambda requested, _: fast if requested == "auto" else requested,
    )
    session = make_session(config, "mono", ["dtype=auto", "device=cpu"])
    assert session.dtype == dtype
    assert session.model.config._attn_implementation == attention


@pytest.mark.parametrize("kind", slow_but(1, ["mono", "duo"]))
def test_dev_run_keeps_the_best_model(kind, dev_config, tmp_path):
    session = make_session(dev_config, kind)
    assert session.dev is not None
    assert session.dev.first_stage() == pytest.approx(0.25)
    lines = finish(session)
    header, given, *steps = rows(tmp_path / "out", "dev.csv")
    assert (header, given[0], float(given[1])) == (
        ["step", "RR@10"],
        "as given",
        session.dev.first_stage(),
    )
    assert "as given: dev RR@10 0.2500" in lines
    measured = {int(step): float(value) for step, value in steps}
    assert list(measured) == [10, 20, 30, 40]
    best = max(measured.values())
    assert best > 0.25
    assert session.dev.measured(str(tmp_path / "out"), "cpu", 1) == best
    assert f"step 40: dev RR@10 {measured[40]:.4f}" in lines
    card = (tmp_path / "out" / "README.md").read_text()
    step = min(step for step, value in measured.items() if value == best)
    assert f"| re-ranked, step {step} | {best:.4f} |" in card
    assert "| as given | 0.2500 |" in card
    assert b"<svg" in (tmp_path / "out/training/curves.svg").read_bytes()
    stored = read_training(str(tmp_path / "out"))
    assert stored.record == TrainingRecord(kind, 40, 4, "RR@10", 0.25)
    assert stored.best == Row(step, best)
    assert len(stored.steps) == 40


@pytest.mark.slow
def test_dev_run_does_not_change_the_training(config, tmp_path):
    finish(make_session(config, "mono", output=tmp_path / "plain"))
    measured = write_train_config(tmp_path / "measured", str(tmp_path / "start"), dev=DEV)
    finish(make_session(measured, "mono"))
    assert rows(tmp_path / "plain", "curve.csv") == rows(tmp_path / "measured" / "out", "curve.csv")


@pytest.mark.slow
def test_checkpoint_says_which_inputs_it_was_trained_on(config, tmp_path):
    finish(make_session(config, "mono", ["optimizer.steps=3"]))
    found = resolve_checkpoint(str(tmp_path / "out"), "mono")
    trained = {"truncation": "original", "max_query_length": 10, "max_length": 32}
    assert input_warnings(found, trained) == ()
    (line,) = input_warnings(found, trained | {"max_length": 512})
    assert "was trained with input.max_length=32: " in line


def test_finished_training_is_not_repeated(config):
    finish(make_session(config, "mono", ["optimizer.steps=5"]))
    again = make_session(config, "mono", ["optimizer.steps=5"])
    assert again.before.finished
    left = sorted(
        str(path.relative_to(config.parent / "out/training"))
        for path in config.parent.glob("out/training/**/*")
    )
    assert left == [
        *("checkpoint-5", "checkpoint-5/state.json"),
        *("curve.csv", "curves.svg", "dev.csv", "training.json"),
    ]


def test_resume_refuses_another_configuration(config):
    train(make_session(config, "mono"), stop_after(3), SILENT, "")
    with pytest.raises(ConfigError, match=r":\n  seed: 0 .* 1 .*\n"):
        make_session(config, "mono", ["seed=1"])


@pytest.mark.parametrize(
    ("name", "old", "new"),
    slow_but(
        1,
        [
            ("corpus.jsonl", "cream", "creamy"),
            ("dev/qrels.txt", "d9 1", "d9 10"),
            ("qrels.txt", "d9 1", "d9 10"),
            ("topics.tsv", "rose", "roses"),
            ("dev/topics.tsv", "rose", "roses"),
            ("dev/run.trec", "run", "runs"),
        ],
    ),
)
def test_resume_refuses_other_data(name, old, new, tmp_path):
    write_collection(tmp_path / "dev")
    dev = {
        "topics": {"path": "dev/topics.tsv", "format": "tsv"},
        "qrels": "dev/qrels.txt",
        "run": "dev/run.trec",
    }
    config = write_train_config(tmp_path, save_start(tmp_path / "start"), dev=dev)
    train(make_session(config, "mono"), stop_after(1), SILENT, "")
    (tmp_path / name).write_text((tmp_path / name).read_text().replace(old, new))
    with pytest.raises(ConfigError, match=rf"bytes\..*/{name}: \d+ .* \d+ "):
        make_session(config, "mono")


def test_output_of_another_model_is_refused(config, tmp_path):
    with pytest.raises(ConfigError, match=r"output: .*/start "):
        make_session(config, "mono", output=tmp_path / "start")
    save_start(tmp_path / "other")
    with pytest.raises(ConfigError, match=r"config\.json"):
        make_session(config, "mono", output=tmp_path / "other")


@pytest.mark.slow
def test_resume_refuses_other_data_of_the_same_size(config):
    train(make_session(config, "mono"), stop_after(3), SILENT, "")
    corpus = config.parent / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("gold", "rose"))
    with pytest.raises(ConfigError, match="`data`"):
        make_session(config, "mono")


@pytest.mark.slow
def test_killed_training_completes_the_publication_of_its_model(dev_config, tmp_path):
    """Between the state that records the best model, and the move of its files."""
    train(make_session(dev_config, "mono", output=tmp_path / "whole"), stop_after(10), SILENT, "")
    killed, candidate = tmp_path / "killed", tmp_path / "killed/training/candidate"
    shutil.copytree(tmp_path / "whole", killed)
    candidate.mkdir()
    for name in ("config.json", "model.safetensors"):
        (killed / name).rename(candidate / name)
    make_session(dev_config, "mono", output=killed, dry_run=True)
    assert candidate.exists()
    make_session(dev_config, "mono", output=killed)
    assert not candidate.exists()
    assert_same(tmp_path / "whole", killed)


class Touched:
    """A pickle that makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_state_is_hashed_before_a_file_of_it_is_opened(config, tmp_path):
    train(make_session(config, "mono", ["optimizer.steps=5"]), stop_after(3), SILENT, "")
    state = tmp_path / "out/training/checkpoint-3"
    assert not (state / "training_args.bin").exists()
    for name in ("optimizer.pt", "rng_state.pth", "scheduler.pt", "pytorch_model.bin"):
        before = (state / name).read_bytes() if (state / name).exists() else None
        torch.save(Touched(tmp_path / "ran"), state / name)
        with pytest.raises(PreflightError, match=name):
            make_session(config, "mono", ["optimizer.steps=5"])
        (state / name).unlink() if before is None else (state / name).write_bytes(before)
    assert not (tmp_path / "ran").exists()
    finish(make_session(config, "mono", ["optimizer.steps=5"]))


@pytest.mark.parametrize("name", ["tensorboard", "unheard"])
def test_missing_tracker_is_named(name, config):
    with pytest.raises(PreflightError, match=rf"report_to: .*{name}"):
        make_session(config, "mono", [f"report_to=[{name}]"])


@pytest.mark.parametrize(
    ("spoil", "message"),
    slow_but(
        1,
        [
            (
                lambda weight: weight.register_hook(lambda grad: grad * float("inf")),
                "gradient .* (nan|inf) .* 1",
            ),
            (lambda weight: weight.data.fill_(float("nan")), "loss .* nan .* 1"),
            (lambda weight: weight.data.fill_(float("inf")), "loss .* (nan|inf) .* 1"),
        ],
    ),
)
@pytest.mark.parametrize("dtype", slow_but(1, ["float32", "bfloat16"]))
def test_training_ends_when_loss_or_gradient_is_not_finite(dtype, spoil, message, config):
    session = make_session(config, "mono", [f"dtype={dtype}"])
    spoil(session.model.classifier.weight)
    with pytest.raises(DataError, match=message):
        train(session, lambda: False, SILENT, "")
    assert not (config.parent / "out" / "model.safetensors").exists()


def mined_data(config: Path) -> Path:
    """The folder of the data of an unfinished training; there is one."""
    (folder,) = (config.parent / "out/training").glob("*data*")
    return folder


@pytest.mark.slow
def test_training_data_is_mined_once_and_removed_at_the_end(config):
    train(make_session(config, "mono", ["optimizer.steps=6"]), stop_after(3), SILENT, "")
    first = mined_data(config)
    mined_at = (first / "store.json").stat().st_mtime_ns
    make_session(config, "mono", ["optimizer.steps=6"])
    assert (first / "store.json").stat().st_mtime_ns == mined_at
    content = (first / "texts.arrow").read_bytes()
    (first / "texts.arrow").write_bytes(content[:-2])
    make_session(config, "mono", ["optimizer.steps=6"])
    assert (first / "texts.arrow").read_bytes() == content
    run = config.parent / "run.trec"
    run.write_text(run.read_text())
    session = make_session(config, "mono", ["optimizer.steps=6"])
    assert mined_data(config) != first
    assert (session.before.step, session.source.groups_per_epoch) == (3, 10)
    finish(session)
    assert not list((config.parent / "out/training").glob("*data*"))


@pytest.mark.parametrize("kind", slow_but(1, ["duo", "mono"]))
def test_training_step_tokenizes_nothing(kind, config, monkeypatch):
    session = make_session(config, kind, ["optimizer.steps=4"])

    def refuse(*_: object) -> None:
        raise AssertionError("a text is tokenized")

    monkeypatch.setattr(BertTokenizer, "encode", refuse)
    finish(session)


@pytest.mark.slow
def test_distillation_learns_from_a_teachers_run(tmp_path):
    config = write_train_config(
        tmp_path,
        save_start(tmp_path / "start"),
        objective={"listwise_kl": 1.0, "bert_ce": 0.3},
        temperature=2.0,
    )
    overrides = [
        *_LEARN,
        "data.teacher=teacher.trec",
        "sampling.negatives=3",
        "optimizer.batch_size=40",
    ]
    finish(make_session(config, "mono", overrides))
    assert learnt(tmp_path / "out") < 0.5
    state = json.loads(
        next((tmp_path / "out/training").glob("checkpoint-*/state.json")).read_text()
    )
    assert state["identity"]["objective.listwise_kl"] == 1.0


@pytest.mark.parametrize(("batch_size", "is_said"), [(20, False), (24, True)])
def test_batch_of_several_epochs_is_said(batch_size, is_said, tmp_path):
    """Ten groups of two docs are an epoch."""
    config = write_train_config(tmp_path, save_start(tmp_path / "start"))
    found = make_session(config, "mono", [f"optimizer.batch_size={batch_size}"], tmp_path / "out")
    assert any("holds several epochs, of 10 groups" in line for line in found.lines()) == is_said

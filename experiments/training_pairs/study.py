r"""RR@10 against the training pairs seen (Nogueira and Cho 2019, figure 1), with target corpus
pre-training and without.

    python -m experiments.training_pairs.study --medquad medquad.tar.gz [--start BERT] \
        [--pairs N] [--work DIR]

Trains on MedQuAD from a BERT, and with --pretraining also from the same BERT after pre-training on
MedQuAD's passages. With --general the BERT is made here: a small one with random weights,
pre-trained on SQuAD's paragraphs. Then a third training is the control, which starts after as many
more steps on the paragraphs. Results and picture are written to --output. With --work an
interrupted study resumes.
"""

import argparse
import csv
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.significance import compare_values
from benchmarks.commands import parser_of, work_folder
from benchmarks.machine import measured_on
from benchmarks.results import command_line
from benchmarks.subprocess_meter import be_quiet, run_apart
from experiments.passage_length.medquad_training import (
    ARCHIVE,
    MAX_QUERY_LENGTH,
    data_and_dev,
    evaluate_best,
    evaluate_bm25,
    prepare,
    start_name,
    train,
)
from experiments.training_pairs.starts import BATCH, COMMAND, Settings, make_starts
from models.training.config import load_train_config
from models.training.report_section import GIVEN
from models.training.session import Session

_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "training-pairs.json"
_MEASURE = "RR@10"
_NAMES = {
    "plain": "fine-tuning alone",
    "tcp": "target corpus pre-training first",
    "general": "as much more general pre-training first",
}
_VOCABULARY = ARCHIVE.parent / "vocab" / "bert-base-uncased.txt"

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Pre-trains, trains all models, and writes the results and their picture."""
    given = sys.argv[1:] if arguments is None else arguments
    options = vars(_parser().parse_args(given))
    archive, output, work = (options.pop(name) for name in ("medquad", "output", "work"))
    general, vocabulary = options.pop("general"), options.pop("vocab")
    if not archive.is_file():
        sys.exit(f"{archive} does not exist: give --medquad, a tar.gz of MedQuAD's XML files")
    be_quiet()
    settings = Settings(**(options | ({"start": None} if general else {"general_steps": 0})))
    with work_folder(work) as folder:
        run_apart(prepare, archive, settings.questions, settings.k, folder)
        found = measure(settings, folder, general, vocabulary)
    start = "small" if settings.start is None else start_name(settings.start)
    shown = {
        "settings": asdict(settings) | {"start": start},
        "command": command_line(COMMAND.split()[-1], given),
    }
    results = {"benchmark": "training pairs, MedQuAD", "machine": measured_on(), **shown, **found}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1) + "\n")
    draw(results, output.with_suffix(".svg"))


def measure(
    settings: Settings, folder: Path, general: Path | None, vocabulary: Path
) -> dict[str, Any]:
    """The curves of all trainings, the measures of their best models, and paired t-tests."""
    every_steps = settings.every_pairs // BATCH
    fine_tuning = {
        **data_and_dev(settings.k, settings.folds, 0, _MEASURE, every_steps),
        "objective": "pointwise",
        "sampling": {"mode": "balanced", "negatives": 1, "ranks": [1, settings.k]},
        "optimizer": {
            "steps": settings.pairs // BATCH,
            "batch_size": BATCH,
            "learning_rate": settings.learning_rate,
            "warmup_share": 0.1,
        },
    }
    curves, best = {}, {}
    for name, start in make_starts(settings, folder, general, vocabulary).items():
        session = _fine_tune(settings, folder, start, name, fine_tuning)
        curves[name] = _curve(folder / name / "training" / "dev.csv")
        best[name] = evaluate_best(session, (_MEASURE,))
    bm25 = evaluate_bm25(session, (_MEASURE,))
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "topics": len(bm25.per_query),
        "bm25": round(bm25.means[_MEASURE], 4),
        "curves": curves,
        "best": [
            {"model": name, "against": against, **_compared(best[name], best.get(against, bm25))}
            for name, against in [
                *((name, "bm25") for name in best),
                ("tcp", "plain"),
                ("tcp", "general"),
            ]
            if {name, against} <= {"bm25", *best}
        ],
    }


def _fine_tune(settings: Settings, folder: Path, start: str, output: str, document: Row) -> Session:
    print(f"training {output}", file=sys.stderr)
    same = {
        "start": start,
        "input": {"max_query_length": MAX_QUERY_LENGTH, "max_length": settings.max_length},
        "seed": settings.seed,
        "dtype": settings.dtype,
        "output": output,
    }
    path = folder / f"{output}.yaml"
    path.write_text(yaml.safe_dump({**document, **same}))
    session, _ = train(load_train_config(str(path), "mono"), "mono", COMMAND)
    return session


def _curve(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["step"] != GIVEN]
    return [
        {"pairs": int(row["step"]) * BATCH, _MEASURE: round(float(row[_MEASURE]), 4)}
        for row in rows
    ]


def _compared(found: Evaluation, baseline: Evaluation) -> Row:
    names = sorted(found.per_query)
    values, others = (
        [each.per_query[name][_MEASURE] for name in names] for each in (found, baseline)
    )
    said = compare_values(values, others)
    return {
        _MEASURE: round(said.mean, 4),
        "difference": round(said.difference, 4),
        "p": None if said.p_value is None else round(said.p_value, 6),
    }


def draw(results: dict[str, Any], path: Path) -> None:
    """Draws the curves, with BM25 as a horizontal line."""
    import matplotlib
    from matplotlib.figure import Figure

    # The same results give the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "beamrank"}):
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        axes.axhline(results["bm25"], color="0.5", linestyle="--", label="BM25")
        for name, rows in results["curves"].items():
            axes.plot(
                [row["pairs"] for row in rows],
                [row[_MEASURE] for row in rows],
                "o-",
                label=_NAMES[name],
            )
        axes.set_xlabel("training pairs seen")
        axes.set_ylabel(f"{_MEASURE}, {results['topics']} topics")
        axes.legend()
        figure.savefig(path, metadata={"Date": None})


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("experiments.training_pairs.study", __doc__)
    parser.add_argument(
        "--medquad", type=Path, default=ARCHIVE, help="MedQuAD's XML files in a tar.gz"
    )
    parser.add_argument(
        "--start", default="google-bert/bert-base-uncased", help="the initial BERT (%(default)s)"
    )
    parser.add_argument("--questions", type=int, help="number of questions (all)")
    parser.add_argument(
        "--folds", type=int, default=20, help="one question in so many is measured (%(default)s)"
    )
    parser.add_argument("--k", type=int, default=10, help="candidates of a question (%(default)s)")
    parser.add_argument("--pairs", type=int, default=100_000, help="training pairs (%(default)s)")
    parser.add_argument(
        "--every-pairs", type=int, default=10_000, help="how often to measure (%(default)s)"
    )
    parser.add_argument(
        "--general", type=Path, help="SQuAD's HTML pages in a tar.gz: makes the initial BERT"
    )
    parser.add_argument(
        "--vocab", type=Path, default=_VOCABULARY, help="the vocabulary of that BERT"
    )
    parser.add_argument(
        "--general-steps", type=int, default=10_000, help="steps that make it (%(default)s)"
    )
    parser.add_argument(
        "--pretraining", type=int, default=0, help="steps on the corpus; default: no pre-training"
    )
    parser.add_argument(
        "--pretraining-rate", type=float, default=5e-5, help="its learning rate (%(default)s)"
    )
    parser.add_argument(
        "--max-length", type=int, default=256, help="tokens of an input (%(default)s)"
    )
    parser.add_argument("--learning-rate", type=float, default=2e-5, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument(
        "--dtype", default="auto", choices=["auto", "float32", "bfloat16"], help="(%(default)s)"
    )
    parser.add_argument(
        "--output", type=Path, default=_RESULTS, help="the results; the picture is beside them"
    )
    parser.add_argument("--work", type=Path, help="keep data and unfinished trainings here")
    return parser


if __name__ == "__main__":
    main()

r"""The study of passage length on MedQuAD (Mass et al. 2019), written to
benchmarks/results/passage-length.json and .md.

    python -m experiments.passage_length.study --medquad medquad.tar.gz --work DIR \
        --output study.json [--only BERTlets]

A row is one training: a method, an input and a held-out fold. Rows that are in the results are not
trained again, and with --work an interrupted training resumes from its last state, which is at most
ten minutes old.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from benchmarks.commands import parser_of, work_folder
from benchmarks.subprocess_meter import run_apart
from experiments.passage_length import length_pictures, length_table
from experiments.passage_length.length_study import (
    INPUTS,
    METHODS,
    TRUNCATION,
    Row,
    Settings,
    measure_row,
)
from experiments.passage_length.medquad_training import ARCHIVE, prepare, start_name

_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "passage-length.json"
_BENCHMARK = "passage length, MedQuAD"


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains the missing rows one after the other; each is written as soon as it is measured."""
    options = _parser().parse_args(arguments)
    if not options.medquad.is_file():
        sys.exit(
            f"{options.medquad} does not exist: give --medquad, a tar.gz of MedQuAD's XML files"
        )
    settings = Settings(**{each.name: getattr(options, each.name) for each in fields(Settings)})
    results = _open(options.output, settings)
    with work_folder(options.work) as work:
        data = work / f"questions-{settings.questions or 'all'}-k{settings.k}"
        run_apart(prepare, options.medquad, settings.questions, settings.k, data)
        for row in _missing(options, results):
            print(
                f"training {row.method}, {row.input.name} tokens, fold {row.fold}", file=sys.stderr
            )
            found = measure_row(row, settings, data)
            results["rows"].append(found)
            _write(options.output, results)
            shutil.rmtree(data / row.folder)


def _missing(options: argparse.Namespace, results: dict[str, Any]) -> list[Row]:
    """The rows to train, fold by fold, so that an interrupted study has complete tables."""
    done = {Row.of_result(values) for values in results["rows"]}
    wanted = [
        Row(method, how, fold)
        for fold in options.only_folds or range(options.folds)
        for method in options.only or METHODS
        for how in INPUTS
        if not options.inputs or how.name in options.inputs
    ]
    return [row for row in wanted if row not in done]


def _open(path: Path, settings: Settings) -> dict[str, Any]:
    """The results so far; they must have the same settings."""
    empty = {"benchmark": _BENCHMARK, "settings": _shown(settings), "rows": []}
    if not path.exists():
        return empty
    found: dict[str, Any] = json.loads(path.read_text())
    if found["settings"] != empty["settings"]:
        sys.exit(
            f"{path} has rows with other settings, {found['settings']}: give these, or another "
            "--output"
        )
    return found


def _shown(settings: Settings) -> dict[str, Any]:
    return asdict(settings) | {"start": start_name(settings.start), "truncation": TRUNCATION}


def _write(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    path.with_suffix(".md").write_text(length_table.render(results), encoding="utf-8")
    length_pictures.draw(results, path)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("experiments.passage_length.study", __doc__)
    inputs = [each.name for each in INPUTS]
    parser.add_argument(
        "--medquad", type=Path, default=ARCHIVE, help="MedQuAD's XML files in a tar.gz"
    )
    parser.add_argument(
        "--start", default="google-bert/bert-base-uncased", help="the initial BERT (%(default)s)"
    )
    parser.add_argument("--questions", type=int, help="number of questions (all)")
    parser.add_argument("--k", type=int, default=10, help="candidates of a question (%(default)s)")
    parser.add_argument(
        "--negatives", type=int, default=2, help="maximum of triplets per positive (%(default)s)"
    )
    parser.add_argument("--steps", type=int, help="steps of a training, instead of three epochs")
    parser.add_argument("--learning-rate", type=float, default=2e-5, help="its peak (%(default)s)")
    parser.add_argument("--folds", type=int, default=5, help="number of folds (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument(
        "--dtype", default="auto", choices=["auto", "float32", "bfloat16"], help="(%(default)s)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(METHODS),
        metavar="METHOD",
        help=f"of {', '.join(METHODS)}",
    )
    parser.add_argument(
        "--inputs", nargs="+", choices=inputs, metavar="INPUT", help=f"of {', '.join(inputs)}"
    )
    parser.add_argument(
        "--only-folds", nargs="+", type=int, metavar="FOLD", help="hold out only these, from 0"
    )
    parser.add_argument("--work", type=Path, help="keep data and unfinished trainings here")
    parser.add_argument(
        "--output", type=Path, default=_RESULTS, help="the results; the table is beside them"
    )
    return parser


if __name__ == "__main__":
    main()

"""`python -m experiments.embedded_pair bi-encoder|mono|duo`: trains the bi-encoder, or makes one of
the embedded pair (README.md).
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import BertForSequenceClassification

from beamrank.errors import BeamrankError, ConfigError
from beamrank.storage.local_files import new_folder
from benchmarks.commands import parser_of
from experiments.embedded_pair.bi_encoder import is_bi_encoder
from experiments.embedded_pair.make_pair import wired_duo, wired_mono
from experiments.embedded_pair.mining import mine_groups
from experiments.embedded_pair.questions import (
    Questions,
    car_questions,
    docstring_questions,
    medquad_questions,
    nfcorpus_questions,
    squad_questions,
    title_questions,
)
from experiments.embedded_pair.tuning import tune
from experiments.progress import StderrProgress
from models.checkpoints.sources import locate
from models.training.data.groups import Group
from models.training.initial_model import save_checkpoint

PROGRESS = StderrProgress()
# The shares of the questions. The wiring reads no labels; a training does.
_WIRED_ON = {"squad": 0.40, "medquad": 0.10, "nfcorpus": 0.20, "docstrings": 0.30}
_SHARES = {
    "bi-encoder": {
        "squad": 0.60,
        "medquad": 0.22,
        "titles": 0.02,
        "car": 0.06,
        "docstrings": 0.10,
    },
    "mono": _WIRED_ON,
    "duo": _WIRED_ON,
}
# Texts that the bi-encoder embeds as before. Trained on queries that are made of docstrings, it
# ranked the demo worse.
_KEPT = "docstrings"


def main() -> int:
    """Makes the checkpoint that the command line asks for; returns the exit code."""
    options = _parse()
    try:
        _make(options)
    except (BeamrankError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, BeamrankError) else 1
    return 0


def _make(options: argparse.Namespace) -> None:
    """Checks the options, reads and mines the collections, and writes the checkpoint, in float16,
    or the data.
    """
    torch.set_num_threads(options.threads)
    bi_encoder = locate(options.bi_encoder)[0]
    if not is_bi_encoder(bi_encoder):
        raise ConfigError(
            f"--bi-encoder: {options.bi_encoder} is not an encoder without a classifier"
        )
    if os.path.exists(options.output):
        raise ConfigError(f"--output: {options.output} exists: remove it, or give another folder")
    collections = _read(options)
    with new_folder(options.output) as temporary:
        if options.part == "bi-encoder":
            _tune(options, bi_encoder, collections, str(temporary))
        else:
            source = bi_encoder if options.part == "mono" else locate(options.mono)[0]
            groups = [group for some in _mine(collections, options).values() for group in some]
            model = _wire(options, bi_encoder, source, groups)
            save_checkpoint(model, source, str(temporary), "float16")


def _tune(
    options: argparse.Namespace, bi_encoder: str, collections: dict[str, Questions], output: str
) -> None:
    """Trains the bi-encoder; it keeps what it gives for docstrings and for queries about them."""
    kept = collections.pop(_KEPT)
    texts = [*kept.passages, *(question.text for question in kept.questions)]
    tune(bi_encoder, _mine(collections, options), texts, Path(output), options.seed, PROGRESS)


def _wire(
    options: argparse.Namespace, bi_encoder: str, mono: str, groups: list[Group]
) -> BertForSequenceClassification:
    if options.part == "duo":
        return wired_duo(mono, groups, options.max_length)
    return wired_mono(
        bi_encoder, groups, options.max_length, options.distilled, options.seed, PROGRESS
    )


def _read(options: argparse.Namespace) -> dict[str, Questions]:
    """The part's collections, with its share of the questions of each."""
    seed = options.seed
    readers: dict[str, Callable[[int], Questions]] = {
        "squad": lambda count: squad_questions(options.squad, options.articles, count, seed),
        "medquad": lambda count: medquad_questions(options.medquad, options.files, count, seed),
        "nfcorpus": lambda count: nfcorpus_questions(options.nfcorpus, count, seed),
        "titles": lambda count: title_questions(options.nfcorpus, count, seed),
        "car": lambda count: car_questions(options.car, count, seed),
        "docstrings": lambda count: docstring_questions(count, seed),
    }
    shares = _SHARES[options.part]
    return {name: readers[name](round(share * options.questions)) for name, share in shares.items()}


def _mine(collections: dict[str, Questions], options: argparse.Namespace) -> dict[str, list[Group]]:
    """The groups of each collection, by its name."""
    groups = {}
    for name, questions in collections.items():
        PROGRESS.note(
            f"{name}: mining negatives of {len(questions.questions):,} questions in "
            f"{len(questions.passages):,} passages"
        )
        groups[name] = mine_groups(questions, options.seed)
    return groups


def _parse() -> argparse.Namespace:
    parser = parser_of("experiments.embedded_pair", __doc__)
    parser.add_argument("part", choices=list(_SHARES))
    parser.add_argument(
        "--bi-encoder",
        required=True,
        help="a folder, which bi-encoder trains and mono is wired from",
    )
    parser.add_argument(
        "--mono",
        default="embedded:mono",
        help="what duo is made of (%(default)s)",
    )
    parser.add_argument(
        "--squad", required=True, help="tar.gz of SQuAD 1.1's HTML pages; only train/ is read"
    )
    parser.add_argument("--medquad", required=True, help="tar.gz of MedQuAD's XML files")
    parser.add_argument(
        "--nfcorpus",
        required=True,
        help="zip of BEIR's NFCorpus: queries of train; bi-encoder: titles",
    )
    parser.add_argument(
        "--car",
        default="trec_car_test200.tar.gz",
        help="bi-encoder: a tar.gz (%(default)s)",
    )
    parser.add_argument("--output", required=True, help="folder to write to")
    parser.add_argument(
        "--distilled", type=int, default=24000, help="mono: pairs to distil on (%(default)s)"
    )
    parser.add_argument(
        "--questions", type=int, default=3000, help="of all collections (%(default)s)"
    )
    parser.add_argument("--articles", type=int, default=100, help="of SQuAD (%(default)s)")
    parser.add_argument("--files", type=int, default=400, help="of MedQuAD (%(default)s)")
    parser.add_argument(
        "--max-length", type=int, default=224, help="tokens of an input (%(default)s)"
    )
    parser.add_argument("--threads", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

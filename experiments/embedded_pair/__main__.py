"""`python -m experiments.embedded_pair mono|duo`: wires the embedded pair; with --steps its last layer learns too."""

import argparse
import functools
import os
import signal
import sys

import torch

from beamrank.digests import SHORT, digest
from beamrank.errors import BeamrankError, ConfigError, PreflightError
from beamrank.ranking.input_layout import InputLimits
from beamrank.storage import files as storage
from experiments.embedded_pair import beginning
from experiments.embedded_pair.data import Collection, read_medquad, read_nfcorpus, read_squad, read_stdlib
from experiments.embedded_pair.distil import duo_loss, mono_loss, random_pairs, taught_by
from experiments.embedded_pair.imitation import Imitation
from experiments.embedded_pair.marks import shape_of, train_last
from experiments.embedded_pair.mining import mine_groups
from experiments.embedded_pair.teacher import embed_texts
from models.checkpoints.files import checkpoint_digest
from models.checkpoints.sources import locate
from models.scoring.backends.torch import resolve_dtype
from models.training.data.encoding import InputEncoder
from models.training.data.examples import FixedSource, Group
from models.training.initial_model import Start
from models.training.loop.distributed import Processes
from models.training.loop.resume_check import check_output
from models.training.loop.state import StateFolder
from models.training.loop.tasks import DuoTask, MonoTask, Scorer, Task
from models.training.loop.trainer import RECORDS, Schedule, Trainer

_MAX_QUERY_LENGTH = 34
_TOKEN_BUDGET = 4096
_GROUPS_A_STEP = 4
_WARM_UP = 0.05
_START, _IMITATED = "start", "imitated.safetensors"


class _Lines:
    """Progress lines for a terminal or a log."""

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def update(self, done: int, total: int, what: str) -> None:
        if done % 10 == 0:
            self.note(f"step {done} of {total}: {what}")


def main() -> int:
    """Makes what the arguments of this process ask for; the exit code."""
    options = _parse()
    try:
        return _make(options)
    except (BeamrankError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, BeamrankError) else 1


def _make(options: argparse.Namespace) -> int:
    """Reads the collections, mines groups, makes the model to begin with, trains it, and writes the checkpoint."""
    torch.set_num_threads(options.threads)
    lines, records = _Lines(), storage.join(options.output, RECORDS)
    given = _check(options)
    identity = _identity(options, given.digest)
    states = StateFolder(records, identity, Processes())
    if states.read().finished:
        lines.note(f"{options.output} was made by the same command before: remove it to make it again")
        return 0
    collections = _read(options)
    os.makedirs(records, exist_ok=True)
    groups = _mine(collections, options, lines)
    lines.note(f"{len(groups)} groups, {sum(group.relevant is not None for group in groups)} with a label")
    encoder = functools.partial(
        InputEncoder,
        limits=InputLimits("original", _MAX_QUERY_LENGTH, options.max_length),
        token_budget=_TOKEN_BUDGET,
    )
    if options.model == "duo" and options.steps:
        groups = taught_by(options.start, groups, encoder)
    start = given
    if not _goes_on(options):
        wired = storage.join(records, f"{_START}-{digest(identity)[:SHORT]}")
        _wire(options, groups, encoder, wired, lines)
        start = Start(wired, options.max_length)
    return _train(options, start, groups, encoder(start.tokenizer), states, lines)


def _check(options: argparse.Namespace) -> Start:
    """What is begun with; it, the teacher and the output are checked, and are folders of this machine afterwards."""
    given = Start(options.start, options.max_length)
    check_output(options.output, given.folder)
    options.start, options.teacher = given.folder, locate(options.teacher)[0]
    if not beginning.is_bi_encoder(options.teacher):
        raise ConfigError(f"--teacher: {options.teacher} is no bi-encoder, whose embeddings negatives are chosen by")
    if options.model == "duo" or _goes_on(options):
        beginning.check_wired(options.start)
    return given


def _goes_on(options: argparse.Namespace) -> bool:
    """Whether a mono is trained further: nothing is wired."""
    return options.model == "mono" and not beginning.is_bi_encoder(options.start)


def _wire(
    options: argparse.Namespace, groups: list[Group], encoder: beginning.EncoderOf, folder: str, lines: _Lines
) -> None:
    """Makes the model that is wired, unless its folder is there."""
    if os.path.exists(folder):
        return
    if options.model == "mono":
        dtype = getattr(torch, resolve_dtype("auto", "cpu"))
        kept = storage.join(options.output, RECORDS, _IMITATED)
        imitation = Imitation(options.imitated, options.imitation_rate, dtype, lines, kept)
        beginning.make_mono_start(options.start, groups, encoder, imitation, folder, options.seed)
    else:
        beginning.make_duo_start(options.start, groups, encoder, folder)


def _train(
    options: argparse.Namespace,
    start: Start,
    groups: list[Group],
    encoder: InputEncoder,
    states: StateFolder,
    lines: _Lines,
) -> int:
    """Trains for the steps that are asked for, and writes the checkpoint; the exit code."""
    schedule = Schedule(
        steps=options.steps,
        groups_a_step=_GROUPS_A_STEP,
        learning_rate=options.learning_rate,
        warmup_steps=round(_WARM_UP * options.steps),
        weights="float16",
    )
    trainer = Trainer(
        _task(options, start, encoder),
        FixedSource(groups, options.seed),
        schedule,
        start.folder,
        options.output,
        states,
        Processes(),
        lines,
    )
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    if trainer.train(lambda: bool(signals)).finished:
        return 0
    lines.note("interrupted: run the same command again to go on")
    return 128 + signal.SIGTERM


def _identity(options: argparse.Namespace, start_digest: str) -> dict[str, object]:
    """What a run has in common with one that it goes on from.

    Raises:
        PreflightError: an archive is not there.
    """
    free = ("output", "threads")
    try:
        sizes = [storage.size_bytes(archive) for archive in (options.squad, options.medquad, options.nfcorpus)]
    except OSError as error:
        raise PreflightError(f"cannot read the training data: {error}") from error
    return {
        **{name: value for name, value in vars(options).items() if name not in free},
        "start digest": start_digest,
        "teacher digest": checkpoint_digest(options.teacher),
        "bytes": sizes,
    }


def _task(options: argparse.Namespace, start: Start, encoder: InputEncoder) -> Task:
    model = start.model(options.model, 2, dropout=0.0, train_word_embeddings=False)
    train_last(model, shape_of(model))
    score = Scorer(model, encoder, "cpu", torch.float32)
    if options.model == "mono":
        return MonoTask(score, mono_loss(options.label_weight))
    return DuoTask(score, duo_loss, functools.partial(random_pairs, seed=options.seed))


def _read(options: argparse.Namespace) -> list[Collection]:
    return [
        read_squad(options.squad, options.articles, round(0.40 * options.questions), options.seed),
        read_medquad(options.medquad, options.files, round(0.10 * options.questions), options.seed),
        read_nfcorpus(options.nfcorpus, round(0.20 * options.questions), options.seed),
        read_stdlib(round(0.30 * options.questions), options.seed),
    ]


def _mine(collections: list[Collection], options: argparse.Namespace, lines: _Lines) -> list[Group]:
    embed = functools.partial(embed_texts, options.teacher)
    groups = []
    for collection in collections:
        questions, passages = len(collection.questions), len(collection.passages)
        lines.note(f"{collection.name}: negatives of {questions:,} questions are chosen from {passages:,} passages")
        groups += mine_groups(collection, embed, options.seed)
    return groups


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.embedded_pair", description=__doc__)
    parser.add_argument("model", choices=["mono", "duo"])
    parser.add_argument(
        "--start",
        required=True,
        help="mono: the bi-encoder, or a mono to train further; duo: a mono. "
        "A folder, a URL, a Hugging Face id, or embedded:mono",
    )
    parser.add_argument(
        "--teacher",
        required=True,
        help="the bi-encoder that chooses negatives; with --steps its cosine is learnt from too",
    )
    parser.add_argument("--squad", required=True, help="tar.gz of SQuAD 1.1's HTML pages; only train/ is read")
    parser.add_argument("--medquad", required=True, help="tar.gz of MedQuAD's XML files")
    parser.add_argument("--nfcorpus", required=True, help="zip of BEIR's NFCorpus; only the queries of train are read")
    parser.add_argument("--output", required=True, help="folder that the checkpoint is written to")
    parser.add_argument("--steps", type=int, default=0, help="of training; with 0 the model is as it was wired")
    parser.add_argument(
        "--imitated",
        type=int,
        default=24000,
        help="mono: pairs that the layers are trained on to give their old states",
    )
    parser.add_argument("--imitation-rate", type=float, default=3e-4, help="learning rate of that")
    parser.add_argument("--questions", type=_positive, default=3000, help="40 %% of SQuAD, 30 %% of the library")
    parser.add_argument("--articles", type=_positive, default=100, help="of SQuAD")
    parser.add_argument("--files", type=_positive, default=400, help="of MedQuAD")
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--label-weight", type=float, default=0.5, help="of the labels' loss; the teacher's has 1")
    parser.add_argument("--max-length", type=int, default=224, help="tokens of an input")
    parser.add_argument("--threads", type=_positive, default=2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

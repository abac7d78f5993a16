"""`python -m models.training mono|duo`: trains a small reranker on a CPU."""

import argparse
import functools

import torch

from models.training.data import read_medquad, read_squad, read_stdlib
from models.training.distill import Recipe, duo_loss, mono_loss, start_duo, start_mono, train
from models.training.encoding import Layout, embed_texts
from models.training.mining import Group, mine_groups


def main() -> None:
    """Reads the collections, mines groups, trains, and writes the checkpoint."""
    options = _parse()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    groups = _mine(options)
    labelled = sum(group.labelled for group in groups)
    print(f"{len(groups)} groups, {labelled} with a label", flush=True)
    recipe = Recipe(
        steps=options.steps,
        learning_rate=options.learning_rate,
        max_doc_tokens=options.max_doc_tokens,
        seed=options.seed,
    )
    start, loss = (start_mono, mono_loss) if options.model == "mono" else (start_duo, duo_loss)
    layout = Layout(options.start, recipe.max_doc_tokens)
    train(start(options.start), layout, groups, loss(recipe), recipe, options.output)


def _mine(options: argparse.Namespace) -> list[Group]:
    collections = (
        read_squad(options.squad, options.articles, round(0.3 * options.questions), options.seed),
        read_medquad(options.medquad, options.files, round(0.2 * options.questions), options.seed),
        read_stdlib(round(0.5 * options.questions), options.seed),
    )
    embed = functools.partial(embed_texts, options.teacher)
    return [group for collection in collections for group in mine_groups(collection, embed, options.seed)]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m models.training", description=__doc__)
    parser.add_argument("model", choices=["mono", "duo"])
    parser.add_argument("--start", required=True, help="folder of the BERT to begin with; for duo, of a trained mono")
    parser.add_argument("--teacher", required=True, help="folder of the bi-encoder to learn from")
    parser.add_argument("--squad", required=True, help="tar.gz of SQuAD 1.1's HTML pages; only train/ is read")
    parser.add_argument("--medquad", required=True, help="tar.gz of MedQuAD's XML files")
    parser.add_argument("--output", required=True, help="folder that the checkpoint is written to")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--questions", type=int, default=4000, help="30 %% of SQuAD, 20 %% of MedQuAD")
    parser.add_argument("--articles", type=int, default=30, help="of SQuAD")
    parser.add_argument("--files", type=int, default=400, help="of MedQuAD")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--max-doc-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()

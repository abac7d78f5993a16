import numpy as np
import pytest
import torch

from beamrank.ranking.input_layout import lay_out
from models.tokenizers.bert import load_bert
from models.training.data.groups import Group, InputEncoder
from models.training.data.texts import TextWriter, TokenTable
from models.training.tasks import DuoTask, MonoTask, labelled_pairs
from tests.support.tiers import slow_but
from tests.support.training import (
    LIMITS,
    WORDS,
    colour_groups,
    make_scorer,
    overfit,
    save_start,
    step_loss,
)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_start(tmp_path_factory.mktemp("start"))


@pytest.mark.parametrize(
    ("kind", "objective"),
    slow_but(
        (("mono", "pointwise"), ("mono", "listwise_kl"), ("duo", "pairwise")),
        [
            *(
                ("mono", name)
                for name in ("pointwise", "bertlets", "bert_ce", "margin_mse", "listwise_kl")
            ),
            *(("duo", name) for name in ("pairwise", "margin_mse", "pairwise_kl")),
        ],
    ),
)
def test_twenty_pairs_are_overfitted(kind, objective, start):
    score = make_scorer(start, kind, 1 if objective in ("bertlets", "bert_ce") else 2)
    task = (MonoTask if kind == "mono" else DuoTask)(score.encoder, {objective: 1.0})
    assert step_loss(task, score.model, colour_groups()).item() > 0.05
    assert overfit(task, score.model, colour_groups()) < 0.01


def test_objectives_are_weighted(start):
    score, groups = make_scorer(start, "mono"), colour_groups(4)
    parts = {"listwise_kl": 1.0, "bert_ce": 0.3, "pointwise": 0.1}

    def loss(objective: dict[str, float]) -> float:
        return step_loss(MonoTask(score.encoder, objective, 2.0), score.model, groups).item()

    losses, together = {name: loss({name: 1.0}) for name in parts}, loss(parts)
    assert together == pytest.approx(
        sum(weight * losses[name] for name, weight in parts.items()), rel=1e-5
    )


def test_labelled_pairs_have_one_relevant_doc():
    group = Group("q", ("a", "b", "c", "d"), (True, False, True, False))
    pairs = labelled_pairs(group)
    assert sorted(pairs) == [(0, 1), (0, 3), (1, 0), (1, 2), (2, 1), (2, 3), (3, 0), (3, 2)]


def test_duo_task_scores_both_orders_with_labels(start):
    tensors = DuoTask(make_scorer(start, "duo").encoder, {"pairwise": 1.0}).collate(
        colour_groups(3)[:1], 0
    )
    assert tensors["relevant"].tolist() == [1, 1, 0, 0]
    assert tensors["teacher"].tolist() == [1.5, 3.0, -1.5, -3.0]
    assert len(tensors["order"]) == 4


@pytest.mark.parametrize("segments", [2, 3])
def test_training_inputs_equal_those_of_scoring(start, segments):
    """Against the special tokens and types written by hand, and cut by the rule `original`."""
    encoder = InputEncoder(load_bert(start), LIMITS, 64)
    long = " ".join(["blue"] * 40)
    inputs = [
        ("what is sky", "blue", "green")[:segments],
        ("what is grass", long, "red")[:segments],
    ] * 3
    cls, sep = WORDS.index("[CLS]"), WORDS.index("[SEP]")
    room = 32 - 5 - 2 if segments == 2 else (32 - 5) // 2 - 2
    rows = []
    for batch in encoder.batches(inputs):
        columns = [tensor.tolist() for tensor in batch.tensors.values()]
        for row, ids, types, mask in zip(batch.rows, *columns, strict=True):
            query, *docs = inputs[row]
            wanted, kinds = [cls, *(WORDS.index(word) for word in query.split()), sep], [0] * 5
            for number, doc in enumerate(docs, 1):
                words = [WORDS.index(word) for word in doc.split()][:room]
                wanted += [*words, sep]
                kinds += [number] * (len(words) + 1)
            assert ids[: sum(mask)] == wanted
            assert types[: sum(mask)] == kinds
            rows.append(row)
    assert sorted(rows) == list(range(len(inputs)))


def test_token_ids_are_packed_as_their_texts(start, tmp_path):
    tokenizer = load_bert(start)
    inputs = [
        ("what is sky", " ".join(["blue"] * 40)),
        ("what is sky", ""),
        ("what is grass", "green"),
    ]
    writer = TextWriter(tmp_path, tokenizer, 512)
    writer.add([text for texts in inputs for text in texts])
    writer.close()
    by_text = InputEncoder(tokenizer, LIMITS, 64).batches(inputs)
    by_row = InputEncoder(tokenizer, LIMITS, 64, tokens=TokenTable(tmp_path)).batches(
        [(0, 1), (2, 3), (4, 5)]
    )
    for one, other in zip(by_text, by_row, strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        assert all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


def test_scorer_keeps_the_order_of_the_inputs(start):
    score = make_scorer(start, "mono")
    inputs = [("what is sky", " ".join(["blue"] * length)) for length in (1, 20, 3, 12, 7)]
    with torch.inference_mode():
        together, apart = score(inputs), [score([one]).item() for one in inputs]
    np.testing.assert_allclose(together.numpy(), apart, atol=1e-5)
    packed = InputEncoder(load_bert(start), LIMITS, 64).pack(inputs)
    assert lay_out(packed, np.arange(5), 32).lengths.tolist() == [7, 26, 9, 18, 13]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_duo_are_those_of_a_plain_loop(dtype, start):
    """Against transformers, inputs laid out by hand and the loss of both orders of each pair."""
    score = make_scorer(start, "duo")
    groups = colour_groups(3)[:4]
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        torch.autograd.backward(
            step_loss(DuoTask(score.encoder, {"pairwise": 1.0}), score.model, groups)
        )
    found = _gradients(score.model)
    plain = make_scorer(start, "duo").model
    losses = []
    for group in groups:
        for i, j in [(0, 1), (0, 2), (1, 0), (2, 0)]:
            parts = [
                ["[CLS]", *group.query.split(), "[SEP]"],
                [group.docs[i], "[SEP]"],
                [group.docs[j], "[SEP]"],
            ]
            ids = torch.tensor([[WORDS.index(word) for part in parts for word in part]])
            types = torch.tensor([[number for number, part in enumerate(parts) for _ in part]])
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                logits = plain(input_ids=ids, token_type_ids=types).logits
            losses.append(
                torch.nn.functional.cross_entropy(logits.float(), torch.tensor([int(i == 0)]))
            )
    torch.autograd.backward(torch.stack(losses).mean())
    wanted = _gradients(plain)
    largest = max(each.abs().max().item() for each in wanted.values())
    for name, each in wanted.items():
        assert (found[name] - each).abs().max().item() < (
            1e-5 if dtype == torch.float32 else 0.05
        ) * largest, name


def _gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}

"""Scores of encoders: as plain loops of sentence-transformers and transformers compute them, and
with the same bits beside any other texts.
"""

import json
import random
import string

import numpy as np
import pytest
import sentence_transformers
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, BertModel

from beamrank.errors import PreflightError
from contrib.encoders.checkpoint import CLASSES
from contrib.encoders.encoder import Encoder
from tests.contrib.encoders.tiny import SAVE, save_backbone, save_dense, save_routed
from tests.support.checkpoints import LETTERS
from tests.support.small_collection import DOCS, TOPICS
from tests.support.tiers import slow_but

_QUERIES = [*TOPICS.values(), "", "amber " * 30]
_DOCS = [*DOCS.values(), "", "e"]
_ALL = [(query, doc) for query in range(len(_QUERIES)) for doc in range(len(_DOCS))]


def _nothing(count: int) -> None:
    pass


def _score(encoder: Encoder, queries=_QUERIES, docs=_DOCS) -> np.ndarray:
    pairs = [(query, doc) for query in range(len(queries)) for doc in range(len(docs))]
    return encoder.score(queries, docs, pairs, _nothing).reshape(len(queries), len(docs))


def _assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """Within a millionth of a score and more; rankings are equal."""
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)
    for one, other in zip(found, expected, strict=True):
        assert (
            np.argsort(-one, kind="stable").tolist() == np.argsort(-other, kind="stable").tolist()
        )


@pytest.mark.parametrize(("stage", "save"), [*SAVE.items(), ("sparse", save_routed)])
def test_scores_are_those_of_sentence_transformers(tmp_path, stage, save):
    folder = save(tmp_path / stage)
    model = getattr(sentence_transformers, CLASSES[stage])(folder, device="cpu")
    tensors = {} if stage == "late" else {"convert_to_tensor": True}
    queries = model.encode_query(_QUERIES, **tensors)
    docs = model.encode_document(_DOCS, **tensors)
    expected = model.similarity(queries, docs).numpy()
    # Prompts and other ends of texts change scores.
    assert np.median(np.std(expected, axis=1)) > 1e-3
    _assert_same(_score(Encoder(stage, folder, "cpu", 2)), expected)


@pytest.mark.parametrize("stage", [*SAVE])
@pytest.mark.parametrize("width", slow_but(1, [{}, {"hidden_size": 48, "num_attention_heads": 3}]))
def test_bits_of_a_score_do_not_depend_on_other_texts(tmp_path, stage, width):
    folder = SAVE[stage](tmp_path / stage, **width)
    drawn = random.Random(8)
    # Many have one length in tokens, and short ones are where products round by their rows.
    docs = [
        " ".join(drawn.choices(LETTERS[5:31], k=drawn.choice((1, 2, 2, 5, 40)))) for _ in range(30)
    ]
    pairs = [(query, doc) for query in range(5) for doc in range(30)]
    scores = Encoder(stage, folder, "cpu", 1).score(_QUERIES[:5], docs, pairs, _nothing)
    expected = dict(zip(pairs, scores.tolist(), strict=True))
    for threads in (1, 3):
        encoder = Encoder(stage, folder, "cpu", threads)
        for size in (1, 4, 60):
            some = drawn.sample(pairs, size)
            order = drawn.sample(range(30), 30)
            moved = [(query, order.index(doc)) for query, doc in some]
            found = encoder.score(_QUERIES[:5], [docs[doc] for doc in order], moved, _nothing)
            assert found.tolist() == [expected[pair] for pair in some]


_MARKS = ("[Q] ", "[D] ")
_LENGTHS = (24, 40)


def _save_pylate(folder) -> tuple[str, torch.Tensor]:
    """A folder as PyLate 1 leaves it: the masks and the norms are in its code."""
    vocabulary = (*LETTERS, ".", ",")
    save_backbone(folder, BertModel, vocabulary, vocab_size=len(vocabulary) + len(_MARKS))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([*_MARKS])
    tokenizer.save_pretrained(folder)
    projection = torch.randn(16, 32, generator=torch.Generator().manual_seed(3))
    (folder / "1_Dense").mkdir()
    save_file({"linear.weight": projection}, folder / "1_Dense/model.safetensors")
    dense = {
        "in_features": 32,
        "out_features": 16,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    saved = {
        "model_type": "ColBERT",
        "query_prefix": _MARKS[0],
        "document_prefix": _MARKS[1],
        "query_length": _LENGTHS[0],
        "document_length": _LENGTHS[1],
        "attend_to_expansion_tokens": False,
        "skiplist_words": [*string.punctuation],
    }
    (folder / "1_Dense/config.json").write_text(json.dumps(dense))
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(saved))
    return str(folder), projection


def _save_colbert(folder) -> tuple[str, torch.Tensor]:
    """A folder as the first ColBERT's code leaves it."""
    save_backbone(folder, BertModel, (*LETTERS, ".", ",", "[unused0]", "[unused1]"))
    projection = torch.randn(16, 32, generator=torch.Generator().manual_seed(3))
    weights = BertModel.from_pretrained(folder).state_dict()
    stored = {f"bert.{name}": tensor for name, tensor in weights.items()}
    save_file(
        {**stored, "linear.weight": projection}, folder / "model.safetensors", {"format": "pt"}
    )
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["HF_ColBERT"]}))
    settings = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": _LENGTHS[0],
        "doc_maxlen": _LENGTHS[1],
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
    }
    (folder / "artifact.metadata").write_text(json.dumps(settings))
    return str(folder), projection


def _colbert_loop(folder: str, projection: torch.Tensor, marks, queries, docs) -> np.ndarray:
    """MaxSim as the paper has it: [CLS] [Q] query [SEP], [MASK] up to a length; punctuation of docs
    is not compared.
    """
    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        BertModel.from_pretrained(folder).eval(),
    )
    to_id = tokenizer.convert_tokens_to_ids
    punctuation = {to_id(mark) for mark in ".,"}

    def vectors(text: str, side: int) -> torch.Tensor:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][: _LENGTHS[side] - 3]
        ids = [to_id("[CLS]"), to_id(marks[side]), *ids, to_id("[SEP]")]
        seen = [1] * len(ids)
        if side == 0:
            missing = _LENGTHS[0] - len(ids)
            ids, seen = ids + [to_id("[MASK]")] * missing, seen + [0] * missing
        with torch.inference_mode():
            hidden = model(torch.tensor([ids]), torch.tensor([seen])).last_hidden_state[0]
        kept = [place for place, number in enumerate(ids) if side == 0 or number not in punctuation]
        return torch.nn.functional.normalize(hidden @ projection.T, dim=-1)[kept]

    of_doc = [vectors(doc, 1) for doc in docs]
    return np.array(
        [
            [float((query @ doc.T).max(dim=1).values.sum()) for doc in of_doc]
            for query in (vectors(text, 0) for text in queries)
        ]
    )


@pytest.mark.parametrize(
    ("save", "marks"), [(_save_pylate, _MARKS), (_save_colbert, ("[unused0]", "[unused1]"))]
)
def test_late_interaction_is_colbert_for_folders_of_other_libraries(tmp_path, save, marks):
    folder, projection = save(tmp_path / "colbert")
    queries = [*TOPICS.values()]
    docs = [f"{text[: len(text) // 2]}, {text[-20:]}." for text in DOCS.values()]
    expected = _colbert_loop(folder, projection, marks, queries, docs)
    _assert_same(_score(Encoder("late", folder, "cpu", 1), queries, docs), expected)


def test_loading_shows_no_bars_and_leaves_them_as_they_were(tmp_path, capfd, monkeypatch):
    from transformers.utils import logging

    folder = save_dense(tmp_path / "dense")
    # Another test of this process may have turned them off.
    monkeypatch.setattr(logging, "_tqdm_active", True)
    capfd.readouterr()
    Encoder("dense", folder, "cpu", 1)
    assert "%" not in capfd.readouterr().err
    assert logging.is_progress_bar_enabled()


def test_checkpoint_that_cannot_be_loaded_is_named(tmp_path):
    folder = save_dense(tmp_path / "dense")
    (tmp_path / "dense/1_Pooling/config.json").write_text("{}")
    with pytest.raises(PreflightError, match=f"{folder}: .*SentenceTransformer"):
        Encoder("dense", folder, "cpu", 1)

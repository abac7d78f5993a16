from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForSequenceClassification

from models.architectures.kernels.token_rows import Layout, TokenRows
from models.checkpoints.checkpoint import load_weights, resolve_checkpoint
from tests.support.checkpoints import save_tiny


def _scorer(folder: str, kind: str = "mono", dtype: torch.dtype = torch.float32) -> Any:
    checkpoint = resolve_checkpoint(folder, kind)
    return checkpoint.architecture.build(load_weights(checkpoint), dtype)


def _wanted(folder: str, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    logits = model(input_ids=ids, token_type_ids=types, attention_mask=mask.long()).logits
    return logits[:, -1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]


@pytest.mark.parametrize(
    "config",
    [
        {"num_labels": 2},
        {"num_labels": 1},
        {"hidden_act": "gelu_new"},
        {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-3},
        {"num_hidden_layers": 1},
        {"num_attention_heads": 2, "intermediate_size": 96, "max_position_embeddings": 40, "type_vocab_size": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("block", [0, 16])
def test_model_equals_transformers(tmp_path, config, block):
    folder = save_tiny(tmp_path, **config)
    ids = torch.randint(0, 1000, (5, 40), generator=torch.Generator().manual_seed(1))
    types = (torch.arange(40) > 9).long().expand(5, 40)
    mask = torch.arange(40) < torch.tensor([40, 3, 17, 40, 39])[:, None]
    with torch.inference_mode():
        wanted = _wanted(folder, ids, types, mask)
        found = _scorer(folder)(TokenRows(ids[mask], types[mask], mask.sum(1).tolist(), Layout(block)))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert wanted.std() > 0.1


def test_head_is_float32_for_any_dtype(tmp_path):
    folder = save_tiny(tmp_path)
    ids = torch.randint(0, 1000, (64, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        rows = TokenRows(ids.flatten(), torch.zeros(64 * 20, dtype=torch.long), [20] * 64)
        exact = _scorer(folder)(rows)
        scores = _scorer(folder, dtype=torch.bfloat16)(rows)
    assert scores.dtype == torch.float32
    assert (scores != scores.bfloat16().float()).sum() > 50
    torch.testing.assert_close(scores, exact, rtol=0, atol=0.2 * exact.std().item())


@pytest.mark.parametrize("token_types", [2, 3])
def test_missing_third_segment_is_a_row_of_zeros(tmp_path, token_types):
    scorer = _scorer(save_tiny(tmp_path, type_vocab_size=token_types), "duo")
    saved = load_file(tmp_path / "model.safetensors")["bert.embeddings.token_type_embeddings.weight"]
    assert torch.equal(scorer.types, torch.cat([saved, torch.zeros(3 - token_types, 32)]))

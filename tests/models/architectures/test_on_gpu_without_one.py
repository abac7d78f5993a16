"""What models do on a GPU, without one: on tensors that only claim to be there, and by the same
steps on the CPU.
"""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from models.architectures.kernels.attention import Layout, TokenRows, supports_varlen
from models.architectures.kernels.rowwise import Linear
from models.checkpoints.checkpoint import load_weights, resolve_checkpoint
from tests.support.models.families import CASES, LENGTHS, Scorer, random_inputs, save_case
from tests.support.models.varlen import varlen_attn
from tests.support.tiers import slow_but


def _check_layers(model: nn.Module, dtype: torch.dtype) -> None:
    """Makes each linear map fail whose result is elsewhere, or of another dtype than its
    weights.
    """

    def check(module: Linear, _: object, output: torch.Tensor) -> None:
        assert (output.device.type, output.dtype) == ("cuda", module.weight.dtype)

    linears = [each for each in model.modules() if isinstance(each, Linear)]
    assert {each.weight.dtype for each in linears} == {dtype, torch.float32}
    for each in linears:
        each.register_forward_hook(check)


def _claim(model: nn.Module) -> None:
    """`model.to("cuda")` where there is no such device: what is not a parameter or a buffer stays
    on the CPU.
    """
    for module in model.modules():
        for name, each in [
            *module.named_parameters(recurse=False),
            *module.named_buffers(recurse=False),
        ]:
            claimed = torch.empty(each.shape, dtype=each.dtype, device="cuda")
            is_parameter = isinstance(each, nn.Parameter)
            setattr(
                module,
                name,
                nn.Parameter(claimed, requires_grad=False) if is_parameter else claimed,
            )


@pytest.mark.parametrize(
    ("dtype", "varlen"),
    slow_but(
        2,
        [
            pytest.param(torch.bfloat16, True, id="bfloat16"),
            pytest.param(torch.float16, False, id="float16 by groups"),
            pytest.param(torch.float16, True, id="float16"),
            pytest.param(torch.float32, False, id="float32"),
        ],
    ),
)
@pytest.mark.parametrize("name", CASES)
def test_model_computes_on_a_claimed_gpu(name, dtype, varlen, tmp_path):
    checkpoint = resolve_checkpoint(save_case(tmp_path, name), "mono")
    model = checkpoint.architecture.build(load_weights(checkpoint), dtype)
    nothing = torch.zeros(sum(LENGTHS), dtype=torch.int32)
    rows = TokenRows(nothing, nothing, LENGTHS, Layout(varlen=varlen))
    # What is made on the CPU, and used beside a tensor of the GPU, raises as it would there.
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        rows._set(mode.from_tensor(rows._numbers))
        _claim(model)
        _check_layers(model, dtype)
        with torch.inference_mode():
            log_odds = model(rows.to("cuda"))
        assert (log_odds.device.type, log_odds.dtype) == ("cuda", torch.float32)
        assert log_odds.shape == (len(LENGTHS),)


@pytest.mark.parametrize("name", CASES)
def test_steps_of_the_gpu_give_the_same_scores_on_the_cpu(name, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    folder, inputs = save_case(tmp_path, name), random_inputs(name)
    wanted = Scorer(folder)(inputs)
    assert torch.tensor(wanted).std() > 0.3
    for varlen in (False, True):
        found = Scorer(folder, blocks=False)(inputs, varlen=varlen)
        torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), rtol=0, atol=1e-4)


def test_varlen_needs_a_gpu_of_ampere_and_half_precision(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    capability = (8, 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    gpu, cpu = torch.device("cuda:1"), torch.device("cpu")
    assert [
        supports_varlen(gpu, dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32)
    ] == [1, 1, 0]
    assert not supports_varlen(cpu, torch.float16)
    capability = (7, 5)
    assert not supports_varlen(gpu, torch.float16)

"""The backend that runs an encoder with OpenVINO on a CPU."""

import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch

from beamrank.errors import ConfigError, PreflightError
from beamrank.machine import is_cuda
from beamrank.ranking.input_layout import Lengths, PaddedBatch
from contrib.openvino.equal_rows import EqualRows
from models.architectures.encoder.model import EncoderScorer
from models.architectures.kernels.rowwise import linears
from models.checkpoints.checkpoint import Checkpoint, load_weights
from models.scoring.backends.registry import Device, OutOfMemory
from models.scoring.backends.torch import is_out_of_memory, resolve_device, resolve_dtype
from models.scoring.packing import Rows, even_budget

# A call takes inputs that are padded to one multiple of 16 tokens, as many as have about so many
# tokens.
_MULTIPLE, _CALL_TOKENS = 16, 2048
_HEAD_ROWS = _CALL_TOKENS // _MULTIPLE
_HINTS = {"float32": "f32", "bfloat16": "bf16"}


class OpenvinoBackend:
    """A `Backend` over OpenVINO. The encoder is converted when it is loaded; the head stays with
    torch, in float32.
    """

    digest_keys: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def resolve(cls, device: str, dtype: str) -> Device:
        if is_cuda(device):
            raise ConfigError(
                f"device is {device}, and the backend openvino runs on the CPU: set device to "
                "auto or cpu"
            )
        if find_spec("openvino") is None:
            raise PreflightError(
                "backend is openvino, and the package openvino is not installed: pip install "
                "'.[openvino]'"
            )
        resolve_device("cpu" if device == "auto" else device)
        computed = resolve_dtype(dtype, "cpu")
        if computed not in _HINTS:
            raise ConfigError(
                f"dtype is {computed}, and the backend openvino computes in {' or '.join(_HINTS)}"
            )
        if computed == "bfloat16" and not _computes_bfloat16():
            raise PreflightError(
                "dtype is bfloat16, and OpenVINO does not compute in it on this CPU: set it to "
                "float32"
            )
        return Device("cpu", computed, _CALL_TOKENS)

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        device: str,
        dtype: str,
        threads: int,
        kernel: str,  # noqa: ARG003
    ) -> Self:
        settings = cls.resolve(device, dtype)
        model = checkpoint.architecture.build(load_weights(checkpoint), torch.float32)
        if not isinstance(model, EncoderScorer):
            raise PreflightError(
                f"the checkpoint {checkpoint.reference} is not an encoder that the backend "
                "openvino can run (docs/reference/checkpoints.md): set backend to torch"
            )
        return cls(model.eval(), checkpoint.architecture.positions, settings.dtype, threads)

    def __init__(self, model: EncoderScorer, positions: int, dtype: str, threads: int) -> None:
        compiled = _compile(model, positions, dtype, threads)
        self._model = model
        # Else two logits of some widths depend on the row in which an input stands.
        for linear in (*linears(model.steps), model.classifier):
            linear.pack(_HEAD_ROWS)
        self._width = compiled.output(0).get_partial_shape()[1].get_length()
        self.streams = threads
        # When memory runs out, OpenVINO 2026.4 raises an error or returns nothing, and what it
        # computes later is wrong.
        self._failure = ""
        # A request computes one call at a time.
        self._idle: SimpleQueue[Any] = SimpleQueue()
        for _ in range(threads):
            self._idle.put(compiled.create_infer_request())

    def start_thread(self) -> None:
        """Gives the head one thread of torch."""
        torch.set_num_threads(1)

    def batches(self, lengths: Lengths, token_budget: int) -> list[Rows]:
        padded = _padded(lengths.sum(axis=1))
        budget = even_budget(padded, min(token_budget, _CALL_TOKENS), self.streams)
        calls = []
        for width in np.unique(padded)[::-1].tolist():
            rows, size = np.flatnonzero(padded == width), max(1, budget // width)
            calls += [rows[start : start + size] for start in range(0, len(rows), size)]
        return calls

    def computed_tokens(self, lengths: Lengths) -> int:
        width = int(_padded(lengths).max())
        return _inputs_of_call(len(lengths), width) * width

    def forward(self, batch: PaddedBatch) -> npt.NDArray[np.float32]:
        if self._failure:
            raise OutOfMemory(self._failure)
        count, width = batch.token_ids.shape
        padding = ((0, 0), (0, int(_padded(batch.lengths).max()) - width))
        ids, types = (np.pad(array, padding) for array in batch[:2])
        is_token = (np.arange(ids.shape[1]) < batch.lengths[:, None]).astype(np.int32)
        rows = np.resize(np.arange(count), _inputs_of_call(count, ids.shape[1]))
        vectors = torch.zeros(_HEAD_ROWS, self._width)
        request = self._idle.get()
        try:
            output = request.infer([ids[rows], types[rows], is_token[rows]])[0]
            if len(output) != len(rows):
                raise MemoryError("OpenVINO computed no output")
            vectors[:count] = torch.from_numpy(output[:count])
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._failure = str(error)
            raise OutOfMemory(self._failure) from error
        finally:
            self._idle.put(request)
        with torch.inference_mode():
            log_odds: npt.NDArray[np.float32] = self._model.judge(vectors)[:count].numpy()
        return log_odds


def _inputs_of_call(count: int, width: int) -> int:
    """How many inputs a call gets: OpenVINO 2026.4 rounds a single one in its own way, and two or
    more alike.
    """
    return max(count, min(2, _CALL_TOKENS // width))


def _padded(lengths: Lengths) -> Lengths:
    return -(-lengths // _MULTIPLE) * _MULTIPLE


def _compile(model: EncoderScorer, positions: int, dtype: str, threads: int) -> Any:
    """The encoder as a compiled model of OpenVINO from int32[b, n] ids, token types and mask to
    float32[b, d].
    """
    import openvino

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor
        ) -> torch.Tensor:
            return self.model.encode(EqualRows(ids, types, mask > 0))

    # So long that every window cuts something off and is traced; its mask then fits any length.
    windows = [layer.window for layer in (*model.lower_layers, model.last_layer)]
    nothing = torch.zeros(2, max(_MULTIPLE, min(positions, max(windows) + 2)), dtype=torch.int32)
    shape = openvino.PartialShape([-1, -1])
    # Decisions on the sizes of the model, which do not change, give warnings.
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = openvino.convert_model(
            Encoder(), example_input=(nothing, nothing, nothing + 1), input=[shape] * 3
        )
    # A stream a thread of the engine. Workers of one machine must not be pinned to the same cores.
    settings = {
        "INFERENCE_PRECISION_HINT": _HINTS[dtype],
        "NUM_STREAMS": threads,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,
    }
    return openvino.Core().compile_model(converted, "CPU", settings)


def _computes_bfloat16() -> bool:
    import openvino

    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")

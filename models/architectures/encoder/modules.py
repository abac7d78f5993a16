"""The head of a cross-encoder that sentence-transformers saved as modules: Pooling, Dense,
LayerNorm, ..., Dense.
"""

from dataclasses import dataclass
from typing import TypeVar

from pydantic import StrictBool

from beamrank.errors import PreflightError
from beamrank.storage.documents import usable
from models.architectures.encoder.shape import Activation, Dense, Head, Norm, Size
from models.architectures.protocol import ModelFiles, Module

_ACTIVATIONS: dict[str, Activation] = {
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": "none",
}
_VECTOR, _SCORES = "sentence_embedding", "scores"
# torch's default, which the module does not change.
_EPS = 1e-5
_Keys = TypeVar("_Keys")


@dataclass(frozen=True)
class _Pooling:
    """The config.json of Pooling; before sentence-transformers 5.5 each mode was a key of its
    own.
    """

    pooling_mode: str | list[str] | None = None
    pooling_mode_cls_token: StrictBool = False
    pooling_mode_mean_tokens: StrictBool = False
    pooling_mode_max_tokens: StrictBool = False
    pooling_mode_mean_sqrt_len_tokens: StrictBool = False
    pooling_mode_weightedmean_tokens: StrictBool = False
    pooling_mode_lasttoken: StrictBool = False

    @property
    def modes(self) -> list[str]:
        """The vectors that are concatenated."""
        if self.pooling_mode is not None:
            return [self.pooling_mode] if isinstance(self.pooling_mode, str) else self.pooling_mode
        prefix = "pooling_mode_"
        names = [name for name, value in vars(self).items() if name.startswith(prefix) and value]
        return [
            name.removeprefix(prefix).removesuffix("_token").removesuffix("_tokens")
            for name in names
        ]


@dataclass(frozen=True)
class _Dense:
    """The config.json of Dense."""

    in_features: Size
    out_features: Size
    bias: StrictBool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"
    module_input_name: str = _VECTOR
    module_output_name: str | None = None
    use_residual: StrictBool = False


@dataclass(frozen=True)
class _LayerNorm:
    """The config.json of LayerNorm."""

    dimension: Size


def read_modular_head(files: ModelFiles, hidden: int) -> Head:
    """The head that the modules after the Transformer are, over vectors of so many values."""
    pooling, *modules = files.modules[1:]
    kinds = [module.kind for module in modules]
    if (
        pooling.kind != "Pooling"
        or kinds[-1:] != ["Dense"]
        or not set(kinds) <= {"Dense", "LayerNorm"}
    ):
        raise PreflightError(
            f"{files} is a sentence-transformers model whose Transformer is followed by "
            f"{', '.join([pooling.kind, *kinds])}: probably an embedding model. A re-ranker's "
            "score is the logits of a sequence classifier (a cross-encoder), or of the modules "
            "Pooling, Dense, LayerNorm, ..., Dense"
        )
    modes = _keys(_Pooling, pooling, files).modes
    if modes not in (["cls"], ["mean"]):
        raise PreflightError(
            f"{files}: {pooling.folder} pools by {', '.join(modes)[:100]!r}; known: cls, mean"
        )
    steps: list[Dense | Norm] = []
    width = hidden
    for module in modules:
        if module.kind == "LayerNorm":
            takes = yields = _keys(_LayerNorm, module, files).dimension
            steps.append(Norm(f"{module.folder}/norm", takes, _EPS))
        else:
            dense = _keys(_Dense, module, files)
            _check_dense(module, dense, _SCORES if module is modules[-1] else _VECTOR, files)
            takes, yields = dense.in_features, dense.out_features
            activation = _ACTIVATIONS[dense.activation_function]
            steps.append(Dense(f"{module.folder}/linear", yields, takes, activation, dense.bias))
        if takes != width:
            raise PreflightError(
                f"{files}: {module.folder} takes {takes} values, and the module before it gives "
                f"{width}"
            )
        width = yields
    head = Head(tuple(steps), "cls" if modes == ["cls"] else "mean")
    if head.classifier.rows > 2 or head.classifier.activation != "none":
        raise PreflightError(
            f"{files}: {modules[-1].folder} has {head.classifier.rows} outputs and the activation "
            f"{head.classifier.activation}; a re-ranker has one logit or two, and its last Dense "
            "no activation"
        )
    return head


def _keys(kind: type[_Keys], module: Module, files: ModelFiles) -> _Keys:
    return usable(kind, module.config, f"{files}: {module.folder}/config.json")


def _check_dense(module: Module, config: _Dense, output: str, files: ModelFiles) -> None:
    names = (config.module_input_name, config.module_output_name or config.module_input_name)
    if config.activation_function not in _ACTIVATIONS:
        problem = (
            f"activation_function {config.activation_function!r:.100}; known: "
            f"{', '.join(_ACTIVATIONS)}"
        )
        raise PreflightError(f"{files}: {module.folder} has {problem}")
    if names != (_VECTOR, output):
        raise PreflightError(
            f"{files}: {module.folder} reads {config.module_input_name!r:.50} and writes "
            f"{config.module_output_name!r:.50}, where a re-ranker reads {_VECTOR!r} and writes "
            f"{output!r}: probably an embedding model"
        )
    if config.use_residual:
        raise PreflightError(
            f"{files}: {module.folder} has a residual connection (use_residual), which is not known"
        )

"""The head of a cross-encoder that sentence-transformers saved as modules: Pooling, Dense, LayerNorm, ..., Dense."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import StrictBool

from beamrank.errors import PreflightError
from beamrank.storage.documents import usable
from models.architectures.encoder.shape import Activation, Dense, Head, Norm, Pooling, Size
from models.architectures.protocol import ModelFiles, Module

_POOLINGS: dict[str, Pooling] = {"cls": "cls", "mean": "mean"}
_ACTIVATIONS: dict[str, Activation] = {
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": "none",
}
_VECTOR, _SCORES = "sentence_embedding", "scores"
# That of torch, which the module does not change.
_EPS = 1e-5


@dataclass(frozen=True)
class _Pooling:
    """The config.json of Pooling; before sentence-transformers 5.5 each mode was a key of its own."""

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
        return [name.removeprefix(prefix).removesuffix("_token").removesuffix("_tokens") for name in names]


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


_CONFIGS: dict[str, type[_Pooling | _Dense | _LayerNorm]] = {
    "Pooling": _Pooling,
    "Dense": _Dense,
    "LayerNorm": _LayerNorm,
}


def read_modular_head(files: ModelFiles, hidden: int) -> Head:
    """The head that the modules after the Transformer are.

    Args:
        files: the checkpoint's, with several modules.
        hidden: the width of the encoder.

    Raises:
        PreflightError: they are not a head that yields one score or two, or one is not known.
    """
    _, *modules = files.modules
    kinds = [module.kind for module in modules]
    if kinds[0] != "Pooling" or kinds[-1] != "Dense" or not set(kinds[1:]) <= {"Dense", "LayerNorm"}:
        raise PreflightError(
            f"the checkpoint {files.reference} is a sentence-transformers model whose Transformer is followed by "
            f"{', '.join(kinds)}: probably an embedding model. A re-ranker's score is the logits of a sequence "
            "classifier (a cross-encoder), or of the modules Pooling, Dense, LayerNorm, ..., Dense"
        )
    place = f"the checkpoint {files.reference}"
    configs = [
        usable(_CONFIGS[module.kind], module.config, f"{place}: {module.folder}/config.json") for module in modules
    ]
    pooling, *steps = configs
    assert isinstance(pooling, _Pooling)
    if len(pooling.modes) != 1 or pooling.modes[0] not in _POOLINGS:
        raise PreflightError(
            f"{place}: {modules[0].folder} pools by {', '.join(pooling.modes)[:100]!r}; known: {', '.join(_POOLINGS)}"
        )
    head = Head(tuple(_read_steps(modules[1:], steps, hidden, place)), _POOLINGS[pooling.modes[0]])
    if head.classifier.rows > 2 or head.classifier.activation != "none":
        raise PreflightError(
            f"{place}: {modules[-1].folder} has {head.classifier.rows} outputs and the activation "
            f"{head.classifier.activation}; a re-ranker has one logit or two, and its last Dense no activation"
        )
    return head


def _read_steps(
    modules: Sequence[Module], configs: Sequence[_Pooling | _Dense | _LayerNorm], width: int, place: str
) -> list[Dense | Norm]:
    steps: list[Dense | Norm] = []
    for module, config in zip(modules, configs, strict=True):
        takes, yields = width, width
        if isinstance(config, _LayerNorm):
            takes = config.dimension
            steps.append(Norm(f"{module.folder}/norm", takes, _EPS))
        elif isinstance(config, _Dense):
            _check_dense(module, config, _SCORES if module is modules[-1] else _VECTOR, place)
            takes, yields = config.in_features, config.out_features
            activation = _ACTIVATIONS[config.activation_function]
            steps.append(Dense(f"{module.folder}/linear", yields, takes, activation, config.bias))
        if takes != width:
            raise PreflightError(
                f"{place}: {module.folder} takes {takes} values, and the module before it gives {width}"
            )
        width = yields
    return steps


def _check_dense(module: Module, config: _Dense, output: str, place: str) -> None:
    if config.activation_function not in _ACTIVATIONS:
        raise PreflightError(
            f"{place}: {module.folder} has activation_function {config.activation_function!r:.100}; known: "
            f"{', '.join(_ACTIVATIONS)}"
        )
    if config.module_input_name != _VECTOR or (config.module_output_name or config.module_input_name) != output:
        raise PreflightError(
            f"{place}: {module.folder} reads {config.module_input_name!r:.50} and writes "
            f"{config.module_output_name!r:.50}, where a re-ranker reads {_VECTOR!r} and writes {output!r}: probably "
            "an embedding model"
        )
    if config.use_residual:
        raise PreflightError(f"{place}: {module.folder} has a residual connection (use_residual), which is not known")

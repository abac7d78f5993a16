"""The variables of BERT's own code: their names, shapes and token types."""

from typing import Any

import numpy as np
import pytest
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

from beamrank.errors import PreflightError
from contrib.tensorflow2019.original_bert import (
    OriginalConfig,
    check_variables,
    read_config,
    read_weights,
    tensorflow_name,
    unused,
)
from models.architectures.families import TOKEN_TYPES
from tests.models.checkpoints.test_malformed_checkpoints import MALFORMED
from tests.support.models import tensorflow1
from tests.support.models.tensorflow1 import CONFIG, known_variables, pretrained_variables


def _config(**changes: Any) -> OriginalConfig:
    return OriginalConfig.model_validate({**CONFIG, **changes})


def _shapes(token_types: int = 2) -> dict[str, tuple[int, ...]]:
    return {name: values.shape for name, values in known_variables(token_types).items()}


def test_original_bert_has_every_tensor_of_transformers():
    model = BertForSequenceClassification(BertConfig(**CONFIG))
    assert {tensorflow_name(name) for name in model.state_dict()} == known_variables().keys()
    pretrained = BertForPreTraining(BertConfig(**CONFIG))
    # The decoder is the word embeddings, and its bias that of the head.
    names = {name for name in pretrained.state_dict() if "decoder" not in name}
    assert {tensorflow_name(name) for name in names} == pretrained_variables().keys()


@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_three_token_types_stay(kind):
    variables = known_variables(3)
    shape, warnings = check_variables(_shapes(3), _config(type_vocab_size=3), kind, "it")
    weights, converted = read_weights(variables.__getitem__, shape, kind)
    assert (converted.token_types, warnings) == (3, ())
    np.testing.assert_array_equal(weights[TOKEN_TYPES], variables[tensorflow1.TOKEN_TYPES])


def test_duo_gets_a_third_row_of_zeros():
    variables = known_variables()
    shape, (warning,) = check_variables(_shapes(), _config(), "duo", "it")
    weights, converted = read_weights(variables.__getitem__, shape, "duo")
    assert (shape.token_types, converted.token_types) == (2, 3)
    assert "The second doc gets a row of zeros" in warning
    np.testing.assert_array_equal(weights[TOKEN_TYPES][:2], variables[tensorflow1.TOKEN_TYPES])
    assert not weights[TOKEN_TYPES][2].any()


def test_token_types_come_from_the_weights():
    shape, (warning,) = check_variables(_shapes(), _config(type_vocab_size=3), "mono", "it")
    assert shape.token_types == 2
    assert "bert_config.json has 3 token types" in warning


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_weights": None, "output_bias": None}, "output_weights .*output_bias: "),
        ({"output_weights": (3, 8), "output_bias": (3,)}, "3 labels, .*output_bias; .*2"),
        ({"output_weights": (1, 8), "output_bias": (1,)}, "1 labels"),
        ({"output_weights": (3, 8)}, r"output_weights .*\(3, 8\), .*\(2, 8\)"),
        ({"bert/pooler/dense/kernel/ExponentialMovingAverage": (8, 8)}, "1 variables .*Average"),
        ({"bert/encoder/layer_1/output/dense/kernel": None}, "1 .*41 .*_1/output/dense/kernel"),
        ({"bert/encoder/layer_2/output/dense/bias": (8,)}, "1 variables .*_2/output/dense/bias"),
        ({"bert/encoder/layer_0/output/dense/kernel": (8, 16)}, r"\(8, 16\), .*\(16, 8\)"),
        ({"bert/embeddings/word_embeddings": (50, 8)}, r"word_em.* \(50, 8\), .*\(40, 8\)"),
        ({"cls/predictions/output_bias": (40,)}, ": cls/predictions/output_bias"),
        ({tensorflow1.TOKEN_TYPES: (1, 8)}, "1 token type, .*duoBERT.*3 "),
        ({tensorflow1.TOKEN_TYPES: ()}, rf"{tensorflow1.TOKEN_TYPES} .*\(\), .*\(0, 8\)"),
        ({tensorflow1.TOKEN_TYPES: None}, f"1 .*41 .*{tensorflow1.TOKEN_TYPES}"),
    ],
)
def test_wrong_variables_are_named(changes, message):
    found = {name: shape for name, shape in {**_shapes(), **changes}.items() if shape is not None}
    with pytest.raises(PreflightError, match=f"checkpoint it.*{message}"):
        check_variables(found, _config(), "duo", "it")


@pytest.mark.parametrize(
    "slots",
    [
        ("adam_m", "adam_v"),
        ("AdamWeightDecayOptimizer", "AdamWeightDecayOptimizer_1"),
        ("Adam",),
        ("lamb_m",),
    ],
)
def test_variables_of_any_optimizer_are_left_out(slots):
    """As transformers' loader leaves out those that it names; these are told by their place and
    shape.
    """
    variables = _shapes()
    of_training = {f"{name}/{slot}": size for name, size in variables.items() for slot in slots}
    of_training |= dict.fromkeys(
        ("global_step", "beta1_power", "current_loss_scale", "good_steps"), ()
    )
    check_variables({**variables, **of_training}, _config(), "mono", "it")
    assert {*unused({**variables, **of_training})} == of_training.keys()


def test_original_bert_refuses_another_model():
    with pytest.raises(PreflightError, match="bert/: dense/kernel"):
        check_variables({"dense/kernel": (8, 8)}, _config(), "mono", "it")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "JSON"),
        ("[]", "bert_config"),
        ('{"hidden_size": 8}', "vocab_size: "),
        ('{"vocab_size": 40, "hidden_size": 0}', "hidden_size: "),
    ],
)
def test_broken_configuration_is_an_error(content, message, tmp_path):
    (tmp_path / "bert_config.json").write_text(content)
    with pytest.raises(PreflightError, match=message):
        read_config(str(tmp_path / "bert_config.json"))


@pytest.mark.parametrize(
    "text",
    [*MALFORMED, '{"vocab_size": Infinity}', '{"vocab_size": 9, "num_hidden_layers": 10000000}'],
)
def test_malformed_configuration_is_refused(tmp_path, text):
    (tmp_path / "bert_config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(PreflightError, match=r"bert_config\.json"):
        read_config(str(tmp_path / "bert_config.json"))


def test_missing_configuration_is_an_error(tmp_path):
    with pytest.raises(PreflightError, match=r"bert_config\.json .*--config"):
        read_config(str(tmp_path / "bert_config.json"))

"""One rule for runs and trainings: which tokenizer is taken for a model's own."""

from pathlib import Path

import pytest

from beamrank.errors import PreflightError
from beamrank.records import NO_TOKEN, SpecialTokens
from models.checkpoints.checkpoint import check_fit, resolve_checkpoint, tokenizer_of, warnings_of
from models.training.initial_model import Start
from tests.support.changed_files import edit_json
from tests.support.checkpoints import SPECIAL_TOKENS, save_tiny

_BERT = SpecialTokens(cls_id=101, sep_id=102, pad_id=0)


@pytest.mark.parametrize(
    ("rows", "ids", "warned"),
    [
        (30522, 30522, False),
        (30592, 30522, False),
        (30593, 30522, True),
        (31000, 30522, True),
        (128, 128, False),
    ],
)
def test_padding_of_the_table_is_no_warning(rows, ids, warned):
    assert bool(check_fit("a", {}, rows, ids, _BERT)) == warned


@pytest.mark.parametrize(
    ("config", "special", "refused"),
    [
        ({"pad_token_id": 0, "cls_token_id": 101, "sep_token_id": 102}, _BERT, False),
        ({"pad_token_id": None}, _BERT, False),
        ({"pad_token_id": -1}, _BERT, False),
        ({"model_type": "roberta", "pad_token_id": 1}, _BERT, True),
        ({"cls_token_id": 2}, _BERT, True),
        ({"sep_token_id": 2}, _BERT, True),
        ({"pad_token_id": 5}, _BERT._replace(pad_id=NO_TOKEN), False),
        # These two keys of BERT checkpoints are left over from language models.
        ({"model_type": "bert", "bos_token_id": 0, "eos_token_id": 2}, _BERT, False),
        ({"model_type": "xlm-roberta", "bos_token_id": 0}, SpecialTokens(5, 6, 1), True),
        (
            {"model_type": "camembert", "bos_token_id": 5, "eos_token_id": 6},
            SpecialTokens(5, 6, 1),
            False,
        ),
    ],
)
def test_special_ids_agree_with_the_configuration(config, special, refused):
    if not refused:
        assert check_fit("a", config, 200, 200, special) == ()
        return
    with pytest.raises(
        PreflightError, match=r"_token, and config\.json has (pad|cls|sep|bos)_token_id \d"
    ):
        check_fit("a", config, 200, 200, special)


def test_other_id_of_padding_is_a_warning_where_positions_do_not_depend_on_it():
    (warning,) = check_fit("a", {"model_type": "bert", "pad_token_id": 1}, 200, 200, _BERT)
    assert "pads with the id 0, and config.json has pad_token_id 1" in warning


def _words(folder: Path, count: int) -> str:
    return save_tiny(
        folder,
        (*SPECIAL_TOKENS, *(f"word{number}" for number in range(count - len(SPECIAL_TOKENS)))),
    )


@pytest.mark.parametrize(
    ("count", "outcome"), [(1000, "fits"), (900, "fits"), (896, "warned"), (1001, "refused")]
)
def test_run_and_training_have_one_rule(tmp_path, count, outcome):
    folder = _words(tmp_path, count)
    if outcome == "refused":
        path = tmp_path / "vocab.txt"
        path.write_text(path.read_text() + "one-more\n")
        for load in (
            lambda: tokenizer_of(resolve_checkpoint(folder, "mono")),
            lambda: Start(folder, 8),
        ):
            with pytest.raises(PreflightError, match=r"1,002 .*1,001"):
                load()
        return
    warned = warnings_of(resolve_checkpoint(folder, "mono"))
    assert bool(warned) == (outcome == "warned")
    assert Start(folder, 8).warnings == warned


def test_other_special_ids_are_refused_in_run_and_training(tmp_path):
    folder = _words(tmp_path, 1000)
    path = tmp_path / "config.json"
    edit_json(path, cls_token_id=3)
    for load in (
        lambda: tokenizer_of(resolve_checkpoint(folder, "mono")),
        lambda: Start(folder, 8),
    ):
        with pytest.raises(PreflightError, match=r"id 2 .*cls_token, .*cls_token_id 3"):
            load()


def test_tokenizer_is_loaded_once_for_each_version_of_its_files(tmp_path):
    folder = _words(tmp_path, 1000)
    first = tokenizer_of(resolve_checkpoint(folder, "mono"))
    assert tokenizer_of(resolve_checkpoint(folder, "mono")) is first
    path = tmp_path / "vocab.txt"
    path.write_text(path.read_text().replace("word7\n", "WORD7\n"))
    assert tokenizer_of(resolve_checkpoint(folder, "mono")).digest != first.digest

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from beamrank.errors import DataError, PreflightError
from beamrank.records import NO_TOKEN, SpecialTokens
from models.checkpoints.checkpoint import fetch_tokenizer, resolve_checkpoint
from models.reranker import Reranker
from models.tokenizers.bert import BertTokenizer
from models.tokenizers.library import LibraryTokenizer, load_tokenizer
from tests.models.tokenizers.reference import UNICODE_TEXTS, all_ids
from tests.support.changed_files import edit_json
from tests.support.checkpoints import save_tiny
from tests.support.models.tokenizers import TEXTS, save_sentencepiece, save_tokenizer
from tests.support.refusals import refuses


@pytest.fixture
def roberta(tmp_path: Path) -> Path:
    return Path(save_tokenizer("roberta", tmp_path))


def change(folder: Path, **parts: Any) -> str:
    path = folder / "tokenizer.json"
    edit_json(path, **parts)
    return str(folder)


@pytest.mark.parametrize("family", ["xlm-roberta", "camembert", "t5", "deberta-v2"])
def test_sentencepiece_model_is_converted_as_transformers_does(tmp_path, family):
    folder = save_sentencepiece(family, tmp_path)
    ours = load_tokenizer(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [text for text in TEXTS if "[SEP]" not in text]
    assert all_ids(ours, texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    assert ours.special.sep_id == (theirs.eos_token_id if family == "t5" else theirs.sep_token_id)


def test_merges_and_vocabulary_are_converted_as_transformers_does(roberta, tmp_path):
    expected = load_tokenizer(str(roberta))
    Tokenizer.from_file(str(roberta / "tokenizer.json")).model.save(str(roberta))
    (roberta / "tokenizer.json").unlink()
    ours = fetch_tokenizer(str(roberta))
    assert all_ids(ours, TEXTS) == all_ids(expected, TEXTS)
    assert ours.special == expected.special


def test_wordpiece_other_than_berts_is_left_to_the_library(tmp_path):
    library = Tokenizer(
        models.WordPiece({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "A": 4, "[": 5})
    )
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    library.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(str(tmp_path))
    assert isinstance(ours, LibraryTokenizer)
    assert all_ids(ours, ["A b A [SEP] A"]) == [[4, 1, 4, 1, 4]]
    assert ours.special == SpecialTokens(2, 3, 0)


@pytest.mark.parametrize(
    "name", ["ElectraTokenizer", "ElectraTokenizerFast", "DistilBertTokenizer", None]
)
def test_vocabulary_of_bert_has_the_table_of_words(tmp_path, name):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": name} if name else {})
    )
    assert isinstance(load_tokenizer(str(tmp_path)), BertTokenizer)


def test_special_tokens_map_names_special_tokens(roberta):
    (roberta / "tokenizer_config.json").unlink()
    assert load_tokenizer(str(roberta)).special == SpecialTokens(0, 2, 1)
    (roberta / "special_tokens_map.json").write_text(
        '{"sep_token": {"content": "<unk>"}, "pad_token": "<mask>"}'
    )
    assert load_tokenizer(str(roberta)).special == SpecialTokens(0, 3, 4)
    (roberta / "tokenizer_config.json").write_text('{"sep_token": "<s>"}')
    assert load_tokenizer(str(roberta)).special == SpecialTokens(0, 0, 4)


def test_digest_covers_all_that_decides_an_id_and_nothing_else(roberta):
    digests = [load_tokenizer(str(roberta)).digest]
    padding = {
        "strategy": {"Fixed": 4},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 1,
    }
    padding |= {"pad_type_id": 0, "pad_token": "<pad>"}
    change(roberta, padding=padding, post_processor=None, decoder=None)
    assert load_tokenizer(str(roberta)).digest == digests[0]
    model = json.loads((roberta / "tokenizer.json").read_text())["model"]
    for parts in (
        {"normalizer": {"type": "Lowercase"}},
        {
            "pre_tokenizer": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            }
        },
        {"model": model | {"merges": model["merges"][:-1]}},
    ):
        digests.append(load_tokenizer(change(roberta, **parts)).digest)
    (roberta / "tokenizer_config.json").write_text('{"pad_token": "<mask>"}')
    digests.append(load_tokenizer(str(roberta)).digest)
    library = Tokenizer.from_file(str(roberta / "tokenizer.json"))
    library.add_tokens([AddedToken("more")])
    library.save(str(roberta / "tokenizer.json"))
    digests.append(load_tokenizer(str(roberta)).digest)
    assert len(set(digests)) == len(digests)


def test_dropout_of_training_is_off(roberta):
    model = json.loads((roberta / "tokenizer.json").read_text())["model"]
    ours = load_tokenizer(change(roberta, model=model | {"dropout": 0.9}))
    assert all_ids(ours, TEXTS) == all_ids(ours, TEXTS)


def test_half_a_surrogate_pair_is_named(roberta):
    with pytest.raises(DataError, match=r"text 1 .*U\+D83D.*character 4"):
        load_tokenizer(str(roberta)).encode(["fine", "half\ud83d"], 512)


def test_encode_without_texts_gives_an_empty_column(roberta):
    column = load_tokenizer(str(roberta)).encode([], 512)
    assert len(column.ids) == len(column.truncated) == 0
    assert load_tokenizer(str(roberta)).encode(["", "a"], 512).ids.value_lengths().to_pylist() == [
        0,
        1,
    ]


def test_code_of_a_checkpoint_is_not_run(roberta, tmp_path):
    marker = tmp_path / "ran"
    code = f"open({str(marker)!r}, 'w')\nclass Theirs:\n    pass\n"
    (roberta / "theirs.py").write_text(code)
    (roberta / "tokenizer_config.json").write_text(
        '{"auto_map": {"AutoTokenizer": [null, "theirs.Theirs"]}}'
    )
    (roberta / "config.json").write_text(
        '{"model_type": "x", "auto_map": {"AutoConfig": "theirs.Theirs"}}'
    )
    assert load_tokenizer(str(roberta)).special.sep_id == 2
    (roberta / "tokenizer.json").rename(roberta / "vocab.json")
    with refuses(PreflightError, "no-tokenizer"):
        load_tokenizer(str(roberta))
    assert not marker.exists()


def test_folder_without_a_tokenizer_is_refused(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with refuses(PreflightError, "no-tokenizer"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("sentencepiece.bpe.model", b"\x0e"),
        ("sentencepiece.bpe.model", b""),
        ("spiece.model", b""),
        ("vocab.json", b"{"),
        ("vocab.json", b"{}"),
        ("merges.txt", b"a b"),
    ],
)
@pytest.mark.parametrize("kind", ["XLMRobertaTokenizer", "RobertaTokenizer"])
def test_damaged_vocabulary_is_refused(tmp_path, kind, name, content):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    with refuses(PreflightError, "no-tokenizer"):
        load_tokenizer(str(tmp_path))


def test_tokenizer_of_python_code_is_refused_by_name(tmp_path):
    (tmp_path / "vocab.json").write_text('{"<unk>": 0, "a</w>": 1}')
    (tmp_path / "merges.txt").write_text("#version\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "CTRLTokenizer"}')
    with pytest.raises(PreflightError, match="CTRLTokenizer"):
        load_tokenizer(str(tmp_path))


def test_named_special_token_that_does_not_exist_is_refused(roberta):
    (roberta / "tokenizer_config.json").write_text('{"sep_token": "[SEP]"}')
    with pytest.raises(PreflightError, match=r"'\[SEP\]'"):
        load_tokenizer(str(roberta))


def test_special_token_that_a_text_can_spell_is_refused(tmp_path):
    """It has no pre-tokenizer, so that the whole text is one word, and the names of special tokens
    are words too.
    """
    library = Tokenizer(models.WordLevel({"</s>": 0, "a": 1, "<unk>": 2}, unk_token="<unk>"))
    library.normalizer = normalizers.Replace("</s>", " \x000")
    library.add_special_tokens(["</s>"])
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(PreflightError, match="'</s>'"):
        load_tokenizer(str(tmp_path))


def test_checkpoint_without_the_tokens_of_its_layout_is_refused(tmp_path):
    """A BERT with Qwen's tokenizer, which has neither [CLS] nor [SEP]."""
    folder = save_tiny(tmp_path, vocab_size=5000)
    (tmp_path / "vocab.txt").unlink(missing_ok=True)
    save_tokenizer("qwen2", tmp_path)
    assert load_tokenizer(str(tmp_path)).special.cls_id == NO_TOKEN
    with pytest.raises(PreflightError, match="cls_id, sep_id"):
        Reranker(str(folder))


def test_checkpoint_scores_with_any_tokenizer(tmp_path):
    folder = save_tiny(tmp_path, vocab_size=5000, max_position_embeddings=96)
    save_tokenizer("modernbert", tmp_path)
    assert isinstance(load_tokenizer(str(folder)), LibraryTokenizer)
    scores = Reranker(str(folder), max_length=96).score(
        [("the dog", text) for text in UNICODE_TEXTS[2:6]]
    )
    assert len(set(scores.tolist())) == 4
    assert "tokenizer.json" in {
        Path(file.url).name for file in resolve_checkpoint(str(folder), "mono").files
    }


def _write(folder: Path, name: str, **content: Any) -> None:
    path = folder / name
    path.write_text(
        json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **content})
    )


def _vocabulary_alone(folder: Path) -> int:
    """The files of 2019 in place of tokenizer.json; the number of words."""
    words = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    (folder / "vocab.txt").write_text(
        "".join(f"{word}\n" for word in sorted(words, key=words.__getitem__))
    )
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return len(words)


def _add_to_fast(folder: Path, *tokens: AddedToken) -> None:
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for token in tokens:
        (library.add_special_tokens if token.special else library.add_tokens)([token])
    library.save(str(folder / "tokenizer.json"))


def _declare(folder: Path, name: str, **content: Any) -> None:
    _vocabulary_alone(folder)
    _write(folder, name, **content)


_ADDED = {
    "content": "dogfox",
    "lstrip": False,
    "normalized": True,
    "rstrip": False,
    "single_word": False,
}
_WAYS = {
    "special in tokenizer.json": lambda folder: _add_to_fast(
        folder, AddedToken("[EOT]", special=True)
    ),
    "plain in tokenizer.json": lambda folder: _add_to_fast(folder, AddedToken("dogfox")),
    "not yet in tokenizer.json": lambda folder: _write(
        folder, "tokenizer_config.json", extra_special_tokens=["[EOT]"]
    ),
    "named extra tokens": lambda folder: _write(
        folder, "tokenizer_config.json", extra_special_tokens={"eot": "[EOT]"}
    ),
    "added_tokens.json": lambda folder: _write(
        folder, "added_tokens.json", dogfox=_vocabulary_alone(folder)
    ),
    "added_tokens_decoder": lambda folder: _write(
        folder,
        "tokenizer_config.json",
        added_tokens_decoder={_vocabulary_alone(folder): {**_ADDED, "special": False}},
    ),
    "additional_special_tokens": lambda folder: _declare(
        folder,
        "tokenizer_config.json",
        additional_special_tokens=["[EOT]", {**_ADDED, "__type": "AddedToken"}],
    ),
    "a word of the vocabulary": lambda folder: _declare(
        folder, "special_tokens_map.json", additional_special_tokens=["fox"]
    ),
}


@pytest.mark.parametrize("family", ["bert", "electra"])
@pytest.mark.parametrize("way", _WAYS)
def test_added_tokens_have_their_own_ids_as_in_transformers(way, family, tmp_path):
    folder = save_tokenizer(family, tmp_path)
    plain = load_tokenizer(folder)
    _WAYS[way](tmp_path)
    ours, theirs = load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)
    texts = [*TEXTS[:4], "a dogfox", "dogfoxes [EOT]the foxes[EOT] DOGFOX", "[eot] x[EOT]x", "fox"]
    ids = all_ids(ours, texts)
    assert ids == theirs(texts, add_special_tokens=False)["input_ids"]
    assert ids != all_ids(plain, texts)
    assert ours.vocab_size > max(token_id for each in ids for token_id in each)
    assert ours.digest != plain.digest
    assert all_ids(ours, ["a [SEP] b [CLS]"]) == all_ids(plain, ["a [SEP] b [CLS]"])


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "deberta-v2"])
def test_tokens_added_to_other_tokenizers_have_their_own_ids(family, tmp_path):
    folder = save_tokenizer(family, tmp_path)
    _add_to_fast(tmp_path, AddedToken("[EOT]", special=True), AddedToken("dogfox"))
    texts = ["the dogfox [EOT] and", "x[EOT]x dogfoxes"]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert (
        all_ids(load_tokenizer(folder), texts)
        == theirs(texts, add_special_tokens=False)["input_ids"]
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"added_tokens_decoder": {"3": {**_ADDED, "content": "[SEP]", "special": True}}},
        {"additional_special_tokens": [], "mask_token": "[MASK]", "extra_special_tokens": {}},
    ],
)
def test_vocabulary_with_its_own_special_tokens_keeps_the_table_of_words(settings, tmp_path):
    folder = save_tokenizer("bert", tmp_path)
    _vocabulary_alone(tmp_path)
    before = load_tokenizer(folder).digest
    _write(tmp_path, "tokenizer_config.json", **settings)
    _write(tmp_path, "added_tokens.json")
    assert isinstance(load_tokenizer(folder), BertTokenizer)
    assert load_tokenizer(folder).digest == before


@pytest.mark.parametrize("kind", ["BertJapaneseTokenizer", "T5Tokenizer"])
def test_class_in_config_json_that_a_vocabulary_does_not_implement_is_refused(kind, tmp_path):
    save_tokenizer("bert", tmp_path)
    _vocabulary_alone(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    _write(tmp_path, "config.json", model_type="bert", tokenizer_class=kind)
    with refuses(PreflightError, "no-tokenizer"):
        load_tokenizer(str(tmp_path))
    _write(tmp_path, "config.json", tokenizer_class="BertTokenizerFast")
    assert isinstance(load_tokenizer(str(tmp_path)), BertTokenizer)

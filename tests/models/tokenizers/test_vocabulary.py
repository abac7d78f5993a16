import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from beamrank.commit import schemas
from beamrank.errors import PreflightError
from models.tokenizers.bert import load_bert
from tests.models.tokenizers.reference import (
    UNICODE_TEXTS,
    all_ids,
    reference_ids,
    transformers_backend,
)
from tests.support.checkpoints import MINILM

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def write_folder(path: Path, tokens: list[str], config: dict | None = None) -> str:
    path.mkdir()
    (path / "vocab.txt").write_text("".join(token + "\n" for token in tokens), encoding="utf-8")
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    return str(path)


def bert(tokens: list[str]) -> Tokenizer:
    fast = Tokenizer(
        models.WordPiece({token: place for place, token in enumerate(tokens)}, unk_token="[UNK]")
    )
    fast.normalizer = normalizers.BertNormalizer()
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return fast


def write_fast(path: Path, fast: Tokenizer) -> str:
    path.mkdir()
    fast.save(str(path / "tokenizer.json"))
    return str(path)


def test_large_vocabulary_has_uint32_ids(tmp_path):
    tokens = SPECIAL + [f"w{number}" for number in range(70_000)]
    large = load_bert(write_folder(tmp_path / "large", tokens))
    column = large.encode(["w69999 W65536", "nowhere w0"], 512)
    assert large.vocab_size == 70_004
    assert (
        column.ids.type == pa.list_(schemas.token_type(large.vocab_size)) == pa.list_(pa.uint32())
    )
    assert column.ids.to_pylist() == [[70_003, 65_540], [1, 4]]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
@pytest.mark.parametrize("tokenize_chinese_chars", [True, False])
def test_settings_have_the_effect_of_transformers(
    tmp_path, lowercase, strip_accents, tokenize_chinese_chars
):
    tokens = [
        *(MINILM / "vocab.txt").read_text(encoding="utf-8").splitlines(),
        "The",
        "CAT",
        "é",
        "東京",
        "Ångström",
    ]
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": lowercase,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": tokenize_chinese_chars,
    }
    path = write_folder(tmp_path / "set", tokens, config)
    expected = reference_ids(
        transformers_backend(path), [*UNICODE_TEXTS, "The CAT é 東京 Ångström"]
    )
    assert all_ids(load_bert(path), [*UNICODE_TEXTS, "The CAT é 東京 Ångström"]) == expected


def test_digest_covers_vocabulary_and_settings_only(tmp_path):
    tokens = [*SPECIAL, "a", "B", "##c"]
    slow = load_bert(write_folder(tmp_path / "slow", tokens))
    fast = load_bert(write_fast(tmp_path / "fast", bert(tokens)))
    stated = load_bert(
        write_folder(tmp_path / "stated", tokens, {"do_lower_case": True, "name_or_path": "x"})
    )
    cased = load_bert(write_folder(tmp_path / "cased", tokens, {"do_lower_case": False}))
    other = load_bert(write_folder(tmp_path / "other", [*SPECIAL, "B", "a", "##c"]))
    marked = load_bert(
        write_folder(tmp_path / "marked", tokens, {"cls_token": {"content": "[PAD]"}})
    )
    assert re.fullmatch(r"[0-9a-f]{64}", slow.digest)
    assert slow.digest == fast.digest == stated.digest
    assert len({slow.digest, cased.digest, other.digest, marked.digest}) == 4


def test_tokenizer_json_decides_case_without_configuration(tmp_path):
    cased = bert([*SPECIAL, "a", "A"])
    cased.normalizer = normalizers.BertNormalizer(lowercase=False)
    path = write_fast(tmp_path / "cased", cased)
    assert all_ids(load_bert(path), ["A a"]) == [[5, 4]]
    (Path(path) / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert all_ids(load_bert(path), ["A a"]) == [[4, 4]]


def test_vocabulary_of_windows_lines_is_read(tmp_path):
    path = Path(write_folder(tmp_path / "lines", []))
    (path / "vocab.txt").write_bytes("\r\n".join([*SPECIAL, "line", "\u2028", "end"]).encode())
    assert all_ids(load_bert(str(path)), ["the end line"]) == [[1, 6, 4]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": models.BPE({"a": 0}, [])}, "BPE, not WordPiece"),
        ({"normalizer": normalizers.NFKC()}, "NFKC, not BertNormalizer"),
        ({"normalizer": None}, "none, not BertNormalizer"),
        ({"pre_tokenizer": pre_tokenizers.Whitespace()}, "Whitespace, not BertPreTokenizer"),
        ({"normalizer": normalizers.BertNormalizer(clean_text=False)}, "clean_text off"),
        ({}, "'<query>'"),
    ],
)
def test_vocabulary_of_another_tokenizer_is_refused_by_name(tmp_path, changes, message):
    fast = bert([*SPECIAL, "a"])
    for part, value in changes.items():
        setattr(fast, part, value)
    if not changes:
        fast.add_tokens([AddedToken("<query>")])
    with pytest.raises(PreflightError, match=message):
        load_bert(write_fast(tmp_path / "other", fast))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", b"{", r"tokenizer\.json"),
        ("tokenizer_config.json", b"{", r"tokenizer_config\.json .*JSON"),
        ("tokenizer_config.json", b"[]", r"tokenizer_config\.json"),
        (
            "tokenizer_config.json",
            b'{"tokenizer_class": "BertJapaneseTokenizer"}',
            "BertJapanese",
        ),
        ("tokenizer_config.json", b'{"sep_token": "</s>"}', "'</s>'"),
        ("vocab.txt", b"[PAD]\n\xff\n", r"vocab\.txt"),
        ("vocab.txt", b"", r"'\[UNK\]'"),
    ],
)
def test_broken_folder_is_refused(tmp_path, file, content, message):
    path = write_folder(tmp_path / "broken", [*SPECIAL, "a"])
    (Path(path) / file).write_bytes(content)
    with pytest.raises(PreflightError, match=message):
        load_bert(path)

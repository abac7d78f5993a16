"""The layout that a checkpoint's own tokenizer gives a pair, against transformers' tokenizer and
model.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, processors
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import InputLimits, Truncation
from models.checkpoints.checkpoint import resolve_checkpoint
from models.checkpoints.files import digest_files, digest_of
from models.reranker import Reranker
from models.tokenizers.layout import pair_layout
from tests.support.models.families import SIZES, random_model
from tests.support.models.tokenizers import TEXTS, save_tokenizer
from tests.support.oracle import assert_parity
from tests.support.refusals import refuses
from tests.support.tiers import slow_but

_LENGTH = 40
_BERT: dict[str, Any] = {
    **SIZES,
    "num_hidden_layers": 2,
    "vocab_size": 720,
    "max_position_embeddings": 96,
    "num_labels": 1,
}
_ROBERTA: dict[str, Any] = {**_BERT, "max_position_embeddings": 98, "pad_token_id": 1}
# With the special tokens of BERT's tokenizer.
_KLUE = {**_ROBERTA, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
_MODERN: dict[str, Any] = {**_BERT, "pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2}
_MODERN |= {"cls_token_id": 1, "sep_token_id": 2}
_DISTIL = {
    "dim": 36,
    "n_layers": 2,
    "n_heads": 3,
    "hidden_dim": 50,
    "vocab_size": 720,
    "num_labels": 1,
}
_UNTYPED = ["input_ids", "attention_mask"]
_TYPED = [*_UNTYPED, "token_type_ids"]
# Some are longer than an input, and so are both texts of some pairs.
_PAIRS = [
    (query, doc) for query in (TEXTS[0], TEXTS[1] * 3) for doc in (TEXTS[2], TEXTS[1], TEXTS[0] * 4)
]

Change = Callable[[Path], None]


def _settings(name: str = "tokenizer_config.json", **changes: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**before, **changes}))

    return change


def _template(pair: str, kind: str = "PreTrainedTokenizerFast", **settings: Any) -> Change:
    """Another template in tokenizer.json, which no class overrides; with types by default."""

    def change(folder: Path) -> None:
        path = str(folder / "tokenizer.json")
        library = Tokenizer.from_file(path)
        names = {piece.partition(":")[0] for piece in pair.split() if not piece.startswith("$")}
        special = [(name, library.token_to_id(name)) for name in sorted(names)]
        library.post_processor = processors.TemplateProcessing(
            single=pair.partition(" $B")[0], pair=pair, special_tokens=special
        )
        library.save(path)
        named = settings or {"model_input_names": _TYPED}
        _settings(tokenizer_class=kind, **named)(folder)

    return change


def _only_vocabulary(kind: str | None = None, name: str = "tokenizer_config.json") -> Change:
    """The vocab.txt of 2019 in place of tokenizer.json, with the class in one of the files."""

    def change(folder: Path) -> None:
        vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
        (folder / "vocab.txt").write_text(
            "".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.__getitem__))
        )
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").unlink()
        if kind:
            _settings(name, tokenizer_class=kind)(folder)

    return change


def _renamed_in_the_map(folder: Path) -> None:
    """transformers takes the map's tokens before those of the settings."""
    _only_vocabulary()(folder)
    _settings("special_tokens_map.json", sep_token="[MASK]")(folder)
    _settings(sep_token="[SEP]")(folder)


def _nothing(folder: Path) -> None:
    del folder


def _save(
    folder: Path, model_type: str, config: dict[str, Any], tokenizer: str, change: Change = _nothing
) -> str:
    random_model(model_type, **config).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    change(folder)
    return str(folder)


_QUERY_TOKENS = "[CLS]:0 [MASK]:0 $A:0 [SEP]:0 [UNK]:1 $B:1 [SEP]:1"
_EQUAL: dict[str, tuple[str, dict[str, Any], str, Change]] = {
    "bert": ("bert", _BERT, "bert", _nothing),
    "bert of the library": ("bert", _BERT, "modernbert", _settings(model_input_names=_TYPED)),
    "bert's vocabulary": ("bert", _BERT, "bert", _only_vocabulary()),
    "bert, any class": (
        "bert",
        _BERT,
        "bert",
        _settings(tokenizer_class="PreTrainedTokenizerFast", model_input_names=_TYPED),
    ),
    "electra": ("electra", _BERT, "electra", _nothing),
    "roberta": ("roberta", _ROBERTA, "roberta", _nothing),
    "xlm-roberta": ("xlm-roberta", _ROBERTA, "xlm-roberta", _nothing),
    "distilbert": ("distilbert", _DISTIL, "distilbert", _nothing),
    "distilbert with bert's": (
        "distilbert",
        _DISTIL,
        "bert",
        _settings(model_input_names=_UNTYPED),
    ),
    "modernbert": ("modernbert", _MODERN, "modernbert", _settings(model_input_names=_UNTYPED)),
}
_OTHER: dict[str, tuple[str, dict[str, Any], str, Change]] = {
    "bert with xlm-r's": ("bert", _BERT, "xlm-roberta", _nothing),
    "bert with roberta's": ("bert", _BERT, "roberta", _nothing),
    "bert without types": ("bert", _BERT, "bert", _settings(model_input_names=_UNTYPED)),
    "bert with distilbert's": ("bert", _BERT, "distilbert", _nothing),
    "bert with distilbert's vocabulary": (
        "bert",
        _BERT,
        "bert",
        _only_vocabulary("DistilBertTokenizer"),
    ),
    "class in config.json": (
        "bert",
        _BERT,
        "bert",
        _only_vocabulary("DistilBertTokenizerFast", "config.json"),
    ),
    "bert with one type": (
        "bert",
        {**_BERT, "type_vocab_size": 1},
        "bert",
        _settings(model_input_names=_UNTYPED),
    ),
    "bert with more tokens": ("bert", _BERT, "bert", _template(_QUERY_TOKENS)),
    "bert, types exchanged": (
        "bert",
        _BERT,
        "bert",
        _template("[CLS]:1 $A:1 [SEP]:1 $B:0 [SEP]:0"),
    ),
    "bert without a start": ("bert", _BERT, "bert", _template("$A:0 [SEP]:0 $B:1")),
    "bert of the library without types": ("bert", _BERT, "modernbert", _nothing),
    "electra without types": ("electra", _BERT, "electra", _settings(model_input_names=_UNTYPED)),
    "roberta with bert's": ("roberta", {**_KLUE, "type_vocab_size": 2}, "bert", _nothing),
    "roberta with bert's vocabulary": (
        "roberta",
        {**_KLUE, "type_vocab_size": 2},
        "bert",
        _only_vocabulary("BertTokenizer", "config.json"),
    ),
    "roberta with bert's, one type": (
        "roberta",
        {**_KLUE, "type_vocab_size": 1},
        "bert",
        _settings(model_input_names=_UNTYPED),
    ),
    "roberta, one separator": (
        "roberta",
        _ROBERTA,
        "roberta",
        _template("<s>:0 $A:0 </s>:0 $B:0 </s>:0"),
    ),
    "distilbert, two separators": (
        "distilbert",
        _DISTIL,
        "bert",
        _template("[CLS] $A [SEP] [SEP] $B [SEP]"),
    ),
    "modernbert, two separators": (
        "modernbert",
        _MODERN,
        "modernbert",
        _template("[CLS] $A [SEP] [SEP] $B [SEP]"),
    ),
    "renamed in the settings": (
        "bert",
        _BERT,
        "bert",
        _settings(
            sep_token="[MASK]", tokenizer_class="PreTrainedTokenizerFast", model_input_names=_TYPED
        ),
    ),
    "renamed in the map": ("bert", _BERT, "bert", _renamed_in_the_map),
    "albert with more tokens": (
        "albert",
        {**_BERT, "embedding_size": 20},
        "bert",
        _template(_QUERY_TOKENS),
    ),
}
_ALL = {**_EQUAL, **_OTHER}


def _of_transformers(folder: str, *rules: Callable[[Any, str, str], Any]) -> list[list[float]]:
    """By each rule, the logit of each pair on its own, exact to float32's rounding; a rule lays it
    out.
    """
    # These weights are large: in float32 the errors of both sides would add up.
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64).eval()
    return [_logits(model, AutoTokenizer.from_pretrained(folder), encode) for encode in rules]


def _logits(model: Any, tokenizer: Any, encode: Callable[[Any, str, str], Any]) -> list[float]:
    typed = (
        "token_type_ids" in tokenizer.model_input_names
        and "type_vocab_size" in model.config.to_dict()
    )
    scores = []
    for pair in _PAIRS:
        ids, types = encode(tokenizer, *pair)
        inputs = {
            "input_ids": torch.tensor([ids]),
            **({"token_type_ids": torch.tensor([types])} if typed else {}),
        }
        with torch.inference_mode():
            scores.append(float(model(**inputs).logits[0, 0]))
    return scores


def _longest_first(tokenizer: Any, query: str, doc: str) -> tuple[list[int], list[int]]:
    inputs = tokenizer(query, doc, truncation=True, max_length=_LENGTH, return_token_type_ids=True)
    return inputs["input_ids"], inputs["token_type_ids"]


def _cut_each(unused: int) -> Callable[[Any, str, str], tuple[list[int], list[int]]]:
    """16 tokens for the query with at most 3 around it, and what is left of the input's length but
    `unused`.
    """

    def encode(tokenizer: Any, query: str, doc: str) -> tuple[list[int], list[int]]:
        library = tokenizer.backend_tokenizer
        library.no_truncation()
        library.no_padding()
        around = library.encode(query, doc)
        special = around.sequence_ids.count(None)
        of_query = around.sequence_ids[: around.sequence_ids.index(1)].count(None)
        first, second = (library.encode(text, add_special_tokens=False) for text in (query, doc))
        first.truncate(16 - min(of_query, 3))
        second.truncate(_LENGTH - special - len(first) - unused)
        cut = library.post_process(first, second)
        return cut.ids, cut.type_ids

    return encode


_RULES: dict[Truncation, Any] = {
    "hf": _longest_first,
    "original": _cut_each(1),
    "paper": _cut_each(0),
}


@pytest.mark.parametrize("name", slow_but(14, _ALL))
def test_pairs_are_laid_out_as_the_checkpoints_tokenizer_does(name, tmp_path):
    folder = _save(tmp_path, *_ALL[name])
    ours = Reranker(
        folder,
        dtype="float32",
        device="cpu",
        truncation="hf",
        max_query_length=16,
        max_length=_LENGTH,
    )
    for rule, theirs in zip(_RULES, _of_transformers(folder, *_RULES.values()), strict=True):
        ours.limits = InputLimits(rule, 16, _LENGTH)
        assert_parity(ours.score(_PAIRS).tolist(), theirs)
    # The digest covers a layout that is not the family's.
    of_files = ours.engine.checkpoint.digest == digest_of(digest_files(folder), folder)
    assert of_files == (name in _EQUAL or name.startswith("albert"))


_UNKNOWN, _NONE, _FILE = "unknown-layout", "no-tokenizer", "tokenizer.json"
_CLASS_4 = "PreTrainedTokenizerFast"


@pytest.mark.parametrize(
    ("model_type", "config", "tokenizer", "change", "kind", "names"),
    [
        *(
            ("bert", _BERT, "bert", change, kind, names)
            for change, kind, names in (
                (_template("[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1 [MASK]:0"), _UNKNOWN, ""),
                (_template("[CLS]:0 $A:0 $B:1 [SEP]:1"), _UNKNOWN, ""),
                (_template("[CLS]:0 $B:0 [SEP]:0 $A:1 [SEP]:1"), _UNKNOWN, ""),
                (_template(_QUERY_TOKENS, "BertTokenizer"), _UNKNOWN, "BertTok"),
                (_settings(tokenizer_class=_CLASS_4), _UNKNOWN, _CLASS_4),
                (_only_vocabulary("BertJapaneseTokenizer", "config.json"), _NONE, _FILE),
                (_settings(tokenizer_class="BertJapaneseTokenizer"), "tokenizer", ""),
                (_only_vocabulary("XLMRobertaTokenizer", "config.json"), _NONE, _FILE),
                (_only_vocabulary("AlbertTokenizer", "config.json"), _NONE, _FILE),
            )
        ),
        ("albert", _BERT, "bert", _template(_QUERY_TOKENS, "BertTokenizer"), _UNKNOWN, "BertTok"),
        ("albert", _BERT, "bert", _settings(tokenizer_class=_CLASS_4), _UNKNOWN, _CLASS_4),
        (
            "albert",
            {**_BERT, "embedding_size": 20},
            "xlm-roberta",
            _template("<s>:0 $A:0 </s>:0 $B:1 </s>:1", "AlbertTokenizer", bos_token="<s>"),
            _UNKNOWN,
            "class AlbertTokenizer",
        ),
        # Its attention compares token types, without a table of them.
        (
            "funnel",
            {"d_model": 36, "n_head": 3, "d_head": 12, "d_inner": 50, "block_sizes": [2, 2]}
            | {"vocab_size": 720, "num_labels": 1},
            "bert",
            _settings(tokenizer_class=_CLASS_4),
            _UNKNOWN,
            _CLASS_4,
        ),
        ("bert", {**_BERT, "type_vocab_size": 1}, "bert", _nothing, "", "1 token type, "),
        ("roberta", {**_KLUE, "type_vocab_size": 1}, "bert", _nothing, "", "1 token type"),
        ("albert", {**_BERT, "type_vocab_size": 1}, "bert", _nothing, "", "1 token type, "),
        ("roberta", _KLUE, "bert", _only_vocabulary(), _NONE, _FILE),
    ],
)
def test_layout_that_is_not_known_is_refused(
    model_type, config, tokenizer, change, kind, names, tmp_path
):
    folder = _save(tmp_path, model_type, config, tokenizer, change)
    with refuses(PreflightError, kind) as raised:
        Reranker(folder, max_length=_LENGTH, max_query_length=16)
    assert names in str(raised.value)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("bert", (0, 1, 2)),
        ("bert without types", (0, 1, 2)),
        ("bert with xlm-r's", (0, 1, 2)),
        ("roberta with bert's", (0, 1, 2)),
        ("roberta with bert's, one type", (0, 0, 0)),
        ("roberta, one separator", (0, 0, 0)),
        ("distilbert, two separators", (0, 0, 0)),
    ],
)
def test_three_texts_continue_the_layout_of_a_pair(name, types, tmp_path):
    model_type, config, tokenizer, change = _ALL[name]
    rows = {} if model_type == "distilbert" else {"type_vocab_size": max(types) + 1}
    folder = _save(tmp_path, model_type, {**config, **rows}, tokenizer, change)
    theirs = AutoTokenizer.from_pretrained(folder)
    pair = theirs("a", "a")
    start, first, between, second, end = (
        [pair["input_ids"][place] for place in places] for places in _runs(pair.sequence_ids(0))
    )
    ids = [[*start, *first, *between], [*second, *between], [*second, *end]]
    laid_out = torch.tensor([[*ids[0], *ids[1], *ids[2]]])
    kinds = torch.tensor([[kind for kind, part in zip(types, ids, strict=True) for _ in part]])
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        given = {} if model_type == "distilbert" else {"token_type_ids": kinds}
        wanted = model(input_ids=laid_out, **given).logits[0, 0]
    duo = Reranker(
        folder, "duo", dtype="float32", device="cpu", max_query_length=16, max_length=_LENGTH
    )
    assert_parity(duo.score([("a", "a", "a")]).tolist(), [float(wanted)])
    assert bool(duo.engine.checkpoint.architecture.warnings) == (types == (0, 0, 0))


def _runs(sequences: list[int | None]) -> list[list[int]]:
    """The places of what stands before, in, between and after the texts of a pair."""
    places = range(len(sequences))
    texts = [[place for place in places if sequences[place] == text] for text in (0, 1)]
    borders = [
        range(texts[0][0]),
        range(texts[0][-1] + 1, texts[1][0]),
        range(texts[1][-1] + 1, len(sequences)),
    ]
    return [list(borders[0]), texts[0], list(borders[1]), texts[1], list(borders[2])]


def test_duo_of_two_types_is_refused_where_its_tokenizer_gives_them(tmp_path):
    folder = _save(tmp_path, "roberta", {**_KLUE, "type_vocab_size": 2}, "bert")
    with pytest.raises(PreflightError, match=r"2 token types, .*3 segments"):
        resolve_checkpoint(folder, "duo")


@pytest.mark.parametrize("where", ["tokenizer_config.json", "tokenizer.json"])
def test_hf_truncation_of_a_tokenizer_that_keeps_the_ends_is_refused(where, tmp_path):
    folder = _save(tmp_path, *_EQUAL["roberta"])
    if where == "tokenizer.json":
        path = str(tmp_path / where)
        library = Tokenizer.from_file(path)
        library.enable_truncation(16, direction="left")
        library.save(path)
        settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
        settings.pop("truncation_side", None)
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    else:
        _settings(truncation_side="left")(tmp_path)
    assert AutoTokenizer.from_pretrained(folder).truncation_side == "left"
    with pytest.raises(PreflightError, match=r"truncation_side left"):
        Reranker(folder, truncation="hf", max_length=_LENGTH)
    Reranker(folder, truncation="paper", max_length=_LENGTH, max_query_length=16)


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "bert with xlm-r's"])
def test_padding_side_decides_no_score(name, tmp_path):
    folder = _save(tmp_path, *_ALL[name])
    before = Reranker(folder, dtype="float32", truncation="hf", max_length=_LENGTH).score(_PAIRS)
    _settings(padding_side="left")(tmp_path)
    after = Reranker(folder, dtype="float32", truncation="hf", max_length=_LENGTH).score(_PAIRS)
    assert after.tolist() == before.tolist()


@pytest.mark.parametrize("kind", ["RobertaTokenizerFast", "TokenizersBackend"])
@pytest.mark.parametrize("stated", [True, False])
def test_space_before_a_text_is_that_of_transformers_or_refused(kind, stated, tmp_path):
    """RoBERTa's own class takes the setting, and not tokenizer.json, which has a space here."""
    folder = _save(tmp_path, *_EQUAL["roberta"])
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**content, "pre_tokenizer": level}))
    _settings(tokenizer_class=kind, add_prefix_space=stated)(tmp_path)
    options: dict[str, Any] = {"dtype": "float32", "truncation": "hf", "max_length": _LENGTH}
    if kind == "RobertaTokenizerFast" and not stated:
        with pytest.raises(
            PreflightError,
            match=r"add_prefix_space True, .*RobertaTokenizerFast",
        ):
            Reranker(folder, **options)
    else:
        (theirs,) = _of_transformers(folder, _longest_first)
        assert_parity(Reranker(folder, **options).score(_PAIRS).tolist(), theirs)


def test_class_whose_layout_changed_is_refused_without_its_file(tmp_path):
    """DeBERTa's first version: transformers 4 puts one separator between two texts, transformers 5
    two.
    """
    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", "a", "b", "ab"]
    (tmp_path / "vocab.json").write_text(
        json.dumps({word: number for number, word in enumerate(words)})
    )
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "DebertaTokenizer"}')
    with pytest.raises(PreflightError, match="DebertaTokenizer"):
        pair_layout(str(tmp_path), "it", False)

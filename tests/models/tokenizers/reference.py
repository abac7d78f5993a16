"""Texts of every kind, and what transformers' own tokenizer makes of them."""

from tokenizers import Tokenizer

from models.tokenizers.base import Tokenizer as OurTokenizer

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
    "line\u2028separator \u2029 paragraph\u2029separator, next\u0085line, vertical\x0btab, "
    "form\x0cfeed, \x1cfs\x1dgs",
    "long "
    + "x" * 99
    + " "
    + "x" * 100
    + " "
    + "x" * 101
    + " "
    + "é" * 100
    + " "
    + "é" * 101
    + " end",
    "supercalifragilisticexpialidocious zzzzqqqq 3.14159 1,000,000 $5 50% a_b c^d `e` <f|g>",
    "private \ue000 \U000f0000use, unassigned \u0378, tags \U000e0041, plane two \U00020000 "
    "\U0002b821",
    "[CLS] [SEP] [MASK] [PAD] [UNK] ##ing [unused1] a[SEP]b [sep]",
]


def transformers_backend(folder: str) -> Tokenizer:
    import transformers

    backend = transformers.BertTokenizer.from_pretrained(folder).backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    return backend


def reference_ids(backend: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in backend.encode_batch(texts, add_special_tokens=False)]


def all_ids(tokenizer: OurTokenizer, texts: list[str]) -> list[list[int]]:
    return tokenizer.encode(texts, 1 << 20).ids.to_pylist()

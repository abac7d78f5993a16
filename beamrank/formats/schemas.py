"""The meanings of each input's columns: their usual names, their types, and which make a row.

Names are known in any case, with `-`, `_` or a space, and without a byte order mark.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from beamrank.errors import PreflightError
from beamrank.formats.checks import Template
from beamrank.formats.values import Id, Kind, Number, RowError, Text, check_query, check_query_id
from beamrank.records import INSTRUCTION

TITLE = "title"
# A title is joined before these; `contents` and `content` are whole.
_TITLED = frozenset(("text", "body", "passage", "segment"))
_BYTE_ORDER_MARK = "\ufeff"

_QUERY_IDS = ("query_id", "qid", "topic_id")
_DOC_IDS = ("doc_id", "docno", "document_id", "corpus_id", "passage_id", "pid")
# A number beside `docno` in PyTerrier's results, the whole document beside `pid` in MS MARCO v2.
_DOCID = ("docid",)
_OWN_IDS = ("_id", "id")


@dataclass(frozen=True)
class Column:
    """A column that an input can have.

    Attributes:
        groups: its usual names. Two names of the first group that is present are refused; later
            groups count only where the first is absent.
        kind: what its values are.
        titled: a title is joined before it, and is the text where there is nothing else.
    """

    groups: tuple[tuple[str, ...], ...]
    kind: Kind
    titled: bool = False


@dataclass(frozen=True)
class Schema:
    """The description of an input.

    Attributes:
        what: its name in messages.
        columns: its columns by their meanings.
        layouts: sets of meanings; one of them makes a row.
        unnamed: the meanings of the columns of rows without names, by the names of formats; other
            names are columns that are not read.
        lists: the columns of a file, and no others, that hold a ranking in each row: the query_id,
            and a list of docs, best first.
        comments: whether lines that begin with `#` are no rows.
        lone_cr: whether a carriage return (CR) inside a line is part of a text.
        hashed: the column that is the hash of the ids of a row where a file lacks it.
        other_widths: what a file of so many columns, or more, is, for messages.
        remedy: what to do about a file without these columns, for messages.
    """

    what: str
    columns: Mapping[str, Column]
    layouts: tuple[tuple[str, ...], ...]
    unnamed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lists: tuple[str, str] | None = None
    comments: bool = False
    lone_cr: bool = False
    hashed: str = ""
    other_widths: Mapping[int, str] = field(default_factory=dict)
    remedy: str = "Rename its columns, or name them in `columns`"

    def is_complete(self, meanings: Collection[str]) -> bool:
        return any(set(meanings) >= set(layout) for layout in self.layouts)

    @property
    def has_numbers(self) -> bool:
        """Whether each row has a number, so that a line of names is none."""
        return any(isinstance(column.kind, Number) for column in self.columns.values())

    @property
    def has_texts(self) -> bool:
        """Whether a row has a text, so that white space is not between its columns."""
        return self.lone_cr or any(
            isinstance(column.kind, Text) for column in self.columns.values()
        )

    @property
    def needed(self) -> str:
        """The columns of a row, for messages."""
        return " or ".join(f"({', '.join(layout)})" for layout in self.layouts)


class Hints(NamedTuple):
    """The hints of a configuration about the columns of files.

    Attributes:
        columns: the names of columns, or their numbers from 1 in files without a header, by their
            meanings.
        fields: the columns that make a text.
        template: what stands around them; None for a space between them.
        header: whether the first line names the columns; None to recognize one.
        quotes: whether a TSV has quotes, as a CSV has.
        format: `tsv`, `csv` or `json`, or a named format; empty to recognize it.
        original: whether topics are decoded as the code of 2019 did.
    """

    columns: Mapping[str, str | int] = {}
    fields: Sequence[str] | None = None
    template: Template | None = None
    header: bool | None = None
    quotes: bool = False
    format: str = ""
    original: bool = False

    @property
    def names(self) -> Mapping[str, str]:
        return {key: name for key, name in self.columns.items() if isinstance(name, str)}

    @property
    def numbers(self) -> Mapping[str, int]:
        return {key: number for key, number in self.columns.items() if isinstance(number, int)}


NO_HINTS = Hints()


class FileHints(NamedTuple):
    """The hints of options about the columns of runs and of qrels."""

    run: Hints = NO_HINTS
    qrels: Hints = NO_HINTS


NO_FILE_HINTS = FileHints()


class ColumnsError(PreflightError):
    """The columns of a file do not fit; the message continues the name of the file."""

    def of(self, file: str) -> "ColumnsError":
        """The error with the name of the file."""
        return ColumnsError(f"{file} {self}", kind=self.kind, file=file)


def in_braces(field: str) -> str:
    """The meaning of a column that is a field of a template."""
    return f"{{{field}}}"


# The places of the columns of each meaning; a text can be made of several.
Binding: TypeAlias = Mapping[str, tuple[int, ...]]


def plain_name(name: str) -> str:
    return name.lstrip(_BYTE_ORDER_MARK).strip().lower().replace("-", "_").replace(" ", "_")


def bind(
    schema: Schema,
    names: Sequence[str],
    hints: Hints = NO_HINTS,
    texts: Collection[int] | None = None,
) -> Binding:
    """The places of the columns that have the meanings of a schema, as far as there are such.

    Args:
        schema: the input.
        names: the names of the columns of its file.
        hints: what the configuration says.
        texts: the places of the columns that hold strings; None where all can.

    Raises:
        ColumnsError: a name that the configuration gives is missing or there twice, or several
            columns can have a meaning.
    """
    plain = [plain_name(name) for name in names]
    binding: dict[str, tuple[int, ...]] = {
        meaning: (
            _named(names, plain, name, "template" if meaning == in_braces(name) else "columns"),
        )
        for meaning, name in hints.names.items()
        if meaning in schema.columns
    }
    for meaning, column in schema.columns.items():
        if column.titled and hints.fields:
            binding[meaning] = tuple(
                _named(names, plain, name, "fields" if hints.template is None else "template")
                for name in hints.fields
            )
        elif meaning not in binding:
            # A field of a template can have a meaning of its own.
            taken = {at for name in binding if name[0] != "{" for at in binding[name]}
            at = _usual(meaning, column, names, plain, taken)
            if at is not None:
                binding[meaning] = (at,)
    for meaning, column in schema.columns.items():
        if column.titled and not hints.fields:
            binding |= _with_title(meaning, binding, plain, texts)
    return {meaning: binding[meaning] for meaning in schema.columns if meaning in binding}


def _named(names: Sequence[str], plain: Sequence[str], name: str, key: str) -> int:
    """The place of a column that the configuration names."""
    exact = [at for at, present in enumerate(names) if present == name]
    places = exact or [at for at, present in enumerate(plain) if present == plain_name(name)]
    if len(places) != 1:
        problem = "has several columns" if places else "has no column"
        raise ColumnsError(
            f"{problem} `{name}`, which `{key}` names; it has: {', '.join(names)}",
            kind="column-twice" if places else "column-missing",
        )
    return places[0]


def _usual(
    meaning: str, column: Column, names: Sequence[str], plain: Sequence[str], taken: set[int]
) -> int | None:
    """The place of a column by its usual names."""
    for group in column.groups:
        places = [at for at, name in enumerate(plain) if name in group and at not in taken]
        if len(places) > 1:
            several = " and ".join(f"`{names[at]}`" for at in places)
            is_twice = len({plain[at] for at in places}) == 1
            raise ColumnsError(
                f"has the columns {several}, and each could be the {meaning}: rename or remove "
                f"one, or choose with `columns: {{{meaning}: {names[places[0]]}}}`",
                kind="column-twice" if is_twice else "column-several",
            )
        if places:
            return places[0]
    return None


def _with_title(
    meaning: str, binding: Binding, plain: Sequence[str], texts: Collection[int] | None
) -> dict[str, tuple[int, ...]]:
    """The text with the title before it, or the title alone where no other column is a text."""
    if TITLE not in plain:
        return {}
    title = plain.index(TITLE)
    if meaning in binding:
        (text,) = binding[meaning]
        return {meaning: (title, text)} if plain[text] in _TITLED else {}
    others = set(range(len(plain)) if texts is None else texts)
    others -= {title, *(at for places in binding.values() for at in places)}
    return {} if others else {meaning: (title,)}


def holds_names(schema: Schema, line: Sequence[str], hints: Hints) -> bool:
    """Whether the first line of a file names its columns.

    Of three, two names are enough to know that one is missing.
    """
    if len(line) < 2 or (schema.has_numbers and any(map(_is_number, line))):
        return False
    binding = bind(schema, line, hints)
    return schema.is_complete(binding) or (len(binding) > 1 and len(schema.layouts[0]) > 2)


def names_columns(schema: Schema, names: Sequence[str], hints: Hints = NO_HINTS) -> bool:
    """Whether some names name all columns of a row; several can have one meaning."""
    try:
        return len(names) > 1 and schema.is_complete(bind(schema, names, hints))
    except ColumnsError as error:
        return error.kind != "column-missing"


def has_usual_name(schema: Schema, line: Sequence[str]) -> bool:
    """Whether a line has a name of a column."""
    groups = [group for column in schema.columns.values() for group in column.groups]
    return any(plain_name(name) in group for name in line for group in groups)


def lacks_names(schema: Schema, line: Sequence[str]) -> bool:
    """Whether a line is a header without some usual names: a row would have a number."""
    has_number = any(map(_is_number, line))
    return len(line) > 1 and schema.has_numbers and not has_number and has_usual_name(schema, line)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# The highest relevance that can be computed with. trec_eval counts the docs of each level from 0 to
# a topic's highest in an array, and nDCG without a cutoff takes time with the square of that.
# (trec_eval itself promises 127.)
MAX_RELEVANCE = 10_000
# The largest number that does not round to infinity in float32.
_MOST_SCORE = float(np.nextafter(3.4028235677973366e38, 0))

_QUERY_ID = Column((_QUERY_IDS, ("query", "topic")), Id(check_query_id))
_DOC_ID = Column((_DOC_IDS, _DOCID, ("doc",)), Id())

# MTEB's columns of a query_id and a list of docs.
TOP_RANKED_NAMES = ("query_id", "corpus_ids")
_DOC_TEXTS = ("text", "contents", "content", "segment", "body", "passage")
_QUERY_TEXTS = ("query", "question", "query_text")

DOCS = Schema(
    "corpus",
    {
        "doc_id": Column((_DOC_IDS, _DOCID, _OWN_IDS, ("doc",)), Id()),
        "text": Column((_DOC_TEXTS,), Text(), titled=True),
    },
    (("doc_id", "text"),),
    {"two columns": ("doc_id", "text")},
    lone_cr=True,
)
_QUERY = Text(check=check_query)
TOPICS = Schema(
    "file of topics",
    {
        "query_id": Column((_QUERY_IDS, _OWN_IDS), Id(check_query_id)),
        "text": Column((("text", *_QUERY_TEXTS), (TITLE,)), _QUERY),
    },
    (("query_id", "text"),),
    {"two columns": ("query_id", "text")},
)


def topics_with(
    fields: Collection[str], *, text: bool = True, instructions: bool = False
) -> Schema:
    """Topics with fields, the names of columns, which make the texts; a field can be empty.

    `text`: whether they have a text of their own; `instructions`: whether each has one.
    """
    columns = {
        **{name: column for name, column in TOPICS.columns.items() if text or name != "text"},
        **({INSTRUCTION: Column(((INSTRUCTION,),), _QUERY)} if instructions else {}),
        **{in_braces(name): Column((), Text(or_empty=True)) for name in fields},
    }
    return replace(TOPICS, columns=columns, layouts=(tuple(columns),), unnamed={})


RUN = Schema(
    "run",
    {
        "query_id": _QUERY_ID,
        "doc_id": _DOC_ID,
        "rank": Column((("rank",),), Number(pa.int64(), 2**63 - 1, "a whole number of 64 bits")),
        "score": Column(
            (("score",),), Number(pa.float32(), _MOST_SCORE, "a number, finite in float32")
        ),
    },
    (("query_id", "doc_id", "rank"), ("query_id", "doc_id", "score")),
    {
        "trec": ("query_id", "Q0", "doc_id", "rank", "score", "run_tag"),
        "msmarco": ("query_id", "doc_id", "rank"),
    },
    lists=TOP_RANKED_NAMES,
    comments=True,
    other_widths={
        4: "Four columns are TREC qrels",
        7: "MS MARCO's top1000 files are unranked: give one as `candidates.run`",
    },
)
QRELS = Schema(
    "qrels file",
    {
        "query_id": _QUERY_ID,
        "doc_id": _DOC_ID,
        "relevance": Column(
            (("relevance", "rel", "score", "label", "grade", "judgment"),),
            Number(
                pa.int16(),
                MAX_RELEVANCE,
                f"a whole number from {-MAX_RELEVANCE:,} to {MAX_RELEVANCE:,}, as trec_eval's "
                "measures count",
                ": map it to grades, such as 0 to 4",
                booleans=True,
            ),
        ),
    },
    (("query_id", "doc_id", "relevance"),),
    {
        "trec": ("query_id", "iteration", "doc_id", "relevance"),
        "three": ("query_id", "doc_id", "relevance"),
    },
    comments=True,
    other_widths={6: "Six columns are a TREC run"},
)
EXCLUDED = Schema(
    "file of docs to exclude",
    {"query_id": _QUERY_ID, "doc_id": _DOC_ID},
    (("query_id", "doc_id"),),
    {"pairs": ("query_id", "doc_id")},
    comments=True,
)


def listed(docs: Schema) -> Schema:
    """Docs that are the candidates of one query each, in the order of the file, or by scores."""
    columns = {"query_id": _QUERY_ID, **docs.columns, "score": RUN.columns["score"]}
    return replace(docs, columns=columns, layouts=(("query_id", "doc_id", "text"),), unnamed={})


_SENTENCE_IDS = ("sentence_id", "sentenceid", "answer_id")


def labelled(schema: Schema) -> Schema:
    """An input in a table that has a query, a doc and a label in each row, and is four inputs."""
    is_run, of_docs = "rank" in schema.columns, "doc_id" in schema.columns
    groups = {
        "query_id": ((*_QUERY_IDS, "question_id", "questionid"),),
        "doc_id": (_DOC_IDS, _DOCID, _SENTENCE_IDS),
        "text": (_DOC_TEXTS, ("sentence", "answer")) if of_docs else (_QUERY_TEXTS,),
        "rank": (),
        "score": (),
    }
    columns = {
        meaning: replace(column, groups=groups.get(meaning, column.groups))
        for meaning, column in schema.columns.items()
    }
    return replace(
        schema,
        columns=columns,
        layouts=(("query_id", "doc_id"),) if is_run else schema.layouts,
        unnamed={},
        lists=None,
        comments=False,
        lone_cr=True,
        hashed="rank" if is_run else "",
    )


# What a table with a label in each row is given as.
LABELLED_PAIRS = (
    "Labelled pairs are given as `data.qrels`, with `data.corpus`, `data.topics` and a `data.run` "
    "of candidates"
)


def _sided(sides: Sequence[str], parts: Sequence[str]) -> tuple[str, ...]:
    """The names of a side of a triple: `pos_passage`, `passage_pos`."""
    pairs = [(side, part) for side in sides for part in parts]
    return tuple(name for one, other in pairs for name in (f"{one}_{other}", f"{other}_{one}"))


_PARTS = ("passage", "doc", "document", "text", "answer", "response")
_PART_IDS = ("id", "doc_id", "docid", "docno", "document_id", "passage_id", "pid")
_RELEVANT = ("positive", "pos", "relevant", "good", "correct", "entailment")
_OTHER = (
    *("negative", "neg", "hard_negative", "hard_neg", "other", "irrelevant", "non_relevant"),
    *("nonrelevant", "not_relevant", "bad", "incorrect", "wrong", "contradiction"),
)
_OTHER_TEXTS = (*_OTHER, *_sided(_OTHER, _PARTS))
# For each column the names of its texts, the names that pairs have too, and the names of its ids.
# There can be several negatives, which have numbers.
_TRIPLE = {
    "query": (
        ("query", "anchor", "question", "topic", "premise", "sentence", "query_text", "q"),
        ("text_left", "sentence1", "text1", "question1"),
        (*_QUERY_IDS, "question_id", "anchor_id"),
    ),
    "positive": (
        (*_RELEVANT, *_sided(_RELEVANT, _PARTS)),
        (*_PARTS, "contents", "content", "segment", "body"),
        ("text_right", "sentence2", "text2", "question2"),
        (*_sided(_RELEVANT, _PART_IDS), *_DOC_IDS, *_DOCID),
    ),
    "negative": (
        _OTHER_TEXTS,
        *(tuple(f"{name}{end}" for name in _OTHER_TEXTS) for end in ("_1", "1", "_0", "0")),
        _sided(_OTHER, _PART_IDS),
    ),
}


def _check_full(text: str) -> None:
    if not text.strip():
        raise RowError("has no text", "no-text")


TRIPLES = Schema(
    "file of triples",
    {meaning: Column(groups, Text(check=_check_full)) for meaning, groups in _TRIPLE.items()},
    (tuple(_TRIPLE),),
    {"triples": tuple(_TRIPLE)},
    remedy="Rename its columns. " + LABELLED_PAIRS,
    other_widths={1: LABELLED_PAIRS},
)
ID_TRIPLES = replace(
    TRIPLES,
    columns={
        meaning: Column(groups[::-1], Id(check_query_id) if meaning == "query" else Id())
        for meaning, groups in _TRIPLE.items()
    },
)

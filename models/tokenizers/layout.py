"""The layout of a pair as a checkpoint's own tokenizer makes it, for every family of models.

Its files decide: the post-processor of tokenizer.json, else the class of transformers. transformers
is asked only where they may not make the family's own layout: importing it takes seconds.
"""

from itertools import groupby
from typing import Any, NamedTuple

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import InputTemplate
from beamrank.records import NO_TOKEN, SpecialTokens
from models.tokenizers.files import (
    FAST,
    TOKENIZER_FILES,
    VOCABULARY,
    TokenizerConfig,
    TokenizerFiles,
)
from models.tokenizers.library import load_fast, load_tokenizer, special_ids

# The class that takes tokenizer.json as it is, in transformers 4 and 5: the former gives token
# types, the latter none.
_GENERIC_4, _GENERIC = "PreTrainedTokenizer", "TokenizersBackend"
_TYPES = "token_type_ids"
# Classes that give token types in transformers 4, and none in transformers 5.
_UNTYPED = (
    *("AlbertTokenizer", "FunnelTokenizer", "HerbertTokenizer", "RemBertTokenizer"),
    *("RoFormerTokenizer", "SplinterTokenizer", "XLNetTokenizer"),
)
# Classes with one separator between two texts in transformers 4, and two in transformers 5.
_CHANGED = ("DebertaTokenizer", "DebertaTokenizerFast")
_BERT = {"cls": "[CLS]", "sep": "[SEP]"}


class FamilyLayout(NamedTuple):
    """How the tokenizers of a family of models lay texts out.

    Attributes:
        separators: how many separators stand between two texts; one stands after the last.
        typed: whether each text has its own token type.
        classes: the tokenizers of transformers that do so.
    """

    separators: int = 1
    typed: bool = True
    classes: tuple[str, ...] = ("BertTokenizer", "ElectraTokenizer")

    def fill(self, special: SpecialTokens, segments: int) -> InputTemplate:
        """The template for inputs of so many texts."""
        ends = ((special.sep_id,) * self.separators,) * (segments - 1) + ((special.sep_id,),)
        types = tuple(range(segments)) if self.typed else (0,) * segments
        return InputTemplate((special.cls_id,), ends, types, special.pad_id)


def own_layout(
    folder: str, reference: str, family: FamilyLayout, reads_types: bool
) -> InputTemplate | None:
    """The layout of a pair where the tokenizer's is not the family's; None where it is, or without
    a tokenizer.

    `reference` names the checkpoint in errors; `reads_types` is whether the model has a table of
    token types.
    """
    files = TokenizerFiles(folder)
    config, named = files.config, files.named
    generic = config.kind in (_GENERIC_4, _GENERIC)
    typed = not generic if config.model_input_names is None else _TYPES in config.model_input_names
    usual = (generic or config.kind in (None, *family.classes)) and files.names_agree
    usual = usual and (typed or not (reads_types and family.typed))
    if (fast := files.read_fast()) is not None:
        library = fast[0]
        special = special_ids(files.url, library, named)
        # Without a post-processor the class decides; without the family's tokens the tokenizer is
        # refused later.
        silent = library.post_processor is None and not generic
        is_family = usual and (
            silent or _library_pair(library, reads_types) == _pair(family, special)
        )
        if is_family or NO_TOKEN in special[:2]:
            return None
    elif not files.has(*TOKENIZER_FILES) or (usual and _is_plain_bert(files, family)):
        return None
    else:
        special = load_tokenizer(folder).special
    layout = pair_layout(folder, reference, reads_types)
    return None if layout == _pair(family, special) else layout


def _is_plain_bert(files: TokenizerFiles, family: FamilyLayout) -> bool:
    """Whether a vocab.txt has the layout of the family."""
    named = all(files.named.get(role, token) == token for role, token in _BERT.items())
    return named and bool(files.has(VOCABULARY)) and "BertTokenizer" in family.classes


def pair_layout(folder: str, reference: str, reads_types: bool | None) -> InputTemplate:
    """The special tokens and token types that the tokenizer of a local folder puts around a query
    and a doc.

    `reads_types` is whether the model has a table of token types, or None if it is not known.
    """
    tokenizer = load_fast(folder, reference)
    files, name = TokenizerFiles(folder), type(tokenizer).__name__
    typed = reads_types is not False and _TYPES in tokenizer.model_input_names
    layout, fast = _library_pair(tokenizer.backend_tokenizer, typed), files.read_fast()
    stated = None if fast is None else fast[0]
    problem = ""
    if reads_types and not typed and _leaves_types_open(files.config, tokenizer):
        problem = (
            f"is of the class {files.config.tokenizer_class or name}, which gives token types in "
            "transformers 4 and none in transformers 5, so beamrank does not know which its model "
            "was trained on. Set "
            "model_input_names in tokenizer_config.json, to "
            '["input_ids", "token_type_ids", "attention_mask"] if it was trained with '
            "transformers 4"
        )
    elif stated is None and name in _CHANGED:
        problem = (
            f"has no {FAST}, and {name}, its class, puts one separator between two texts in "
            "transformers 4 and two in transformers 5, so the layout that the model was trained "
            f"on is not known. Give it the {FAST} that transformers 4 saves"
        )
    elif (
        stated is not None
        and stated.post_processor is not None
        and _library_pair(stated, typed) != layout
    ):
        problem = (
            f"contradicts itself: its class, {name} of transformers, lays a pair out otherwise "
            f"than its {FAST}, so the layout that the model was trained on is not known. Set "
            f"tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast if {FAST} is "
            "right, else save the tokenizer again "
            "(`AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)`)"
        )
    elif isinstance(layout, InputTemplate):
        return layout
    problem = (
        problem or f"{layout}, so beamrank does not know the input that its model was trained on"
    )
    raise PreflightError(
        f"the tokenizer of the checkpoint {reference} {problem}", kind="unknown-layout"
    )


def extend_layout(pair: InputTemplate, segments: int) -> InputTemplate:
    """The layout of more texts, as a pair's continues: each text but the last has what the first
    has after it.
    """
    between, end = pair.ends
    first, second = pair.token_types
    types = tuple(first + (second - first) * place for place in range(segments))
    ends, leads = (between,) * (segments - 1) + (end,), pair.leads * (segments - 1)
    return InputTemplate(pair.start, ends, types, pair.pad_id, leads)


def _leaves_types_open(config: TokenizerConfig, tokenizer: Any) -> bool:
    changed = config.kind == _GENERIC_4 or type(tokenizer).__name__ in _UNTYPED
    if not changed or config.model_input_names is not None:
        return False
    pair = _library_pair(tokenizer.backend_tokenizer, typed=True)
    return isinstance(pair, str) or any(pair.token_types)


def _pair(family: FamilyLayout, special: SpecialTokens) -> InputTemplate:
    return family.fill(special._replace(pad_id=0), 2)


def _library_pair(library: Any, typed: bool) -> InputTemplate | str:
    """The layout of a pair, or why it cannot be expressed; `typed` is whether the model reads token
    types.
    """
    words = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    words.post_processor = library.post_processor
    pair = words.encode("a", "a")
    types = pair.type_ids if typed else [0] * len(pair.ids)
    runs = [
        (text, [place for place, _ in run])
        for text, run in groupby(enumerate(pair.sequence_ids), lambda e: e[1])
    ]
    before = runs.pop(0)[1] if runs[0][0] is None else []
    if [text for text, _ in runs] not in ([0, None, 1], [0, None, 1, None]):
        return "puts no token between a query and a doc"
    first, between, second, *after = (places for _, places in runs)
    end = after[0] if after else []
    kinds = (types[first[0]], types[second[0]])
    lead = 0 if kinds[0] == kinds[1] else [types[place] for place in between].count(kinds[1])
    border = second[0] - lead
    if types != [kinds[place >= border] for place in range(len(types))]:
        return "gives a special token another token type than the texts beside it"
    ids = [tuple(pair.ids[place] for place in places) for places in (before, between, end)]
    # The batches have no padding, so its id does not matter.
    return InputTemplate(ids[0], (ids[1], ids[2]), kinds, 0, (lead,) if lead else ())

"""All checks, by code. A new check is a function in `contrib/lint/checks` and its entry here.

A code never changes its meaning. The first digit is the subject; docs/reference/lint.md lists the
codes.
"""

from collections import ChainMap

from contrib.lint.check import Check
from contrib.lint.checks import against, constants, ids, lines, numbers

_WHITE_SPACE = "separates the columns as in the first row"
_BY_SCORE = "the ranks follow the scores"
_TIES = "lowers scores until they decrease in the order of the evaluation"

LINE_CHECKS: dict[str, Check] = {
    "L101": Check(
        lines.columns,
        "error",
        "a line without exactly 6 (TREC) or 3 (MS MARCO) columns",
        blocks_fix=True,
    ),
    "L102": Check(lines.blank_line, "warning", "a blank line", "removes it"),
    "L103": Check(lines.utf8, "error", "bytes that are not valid UTF-8"),
    "L104": Check(
        lines.byte_order_mark,
        "error",
        "a byte order mark at the beginning of the file",
        "removes it",
    ),
    "L105": Check(lines.crlf, "warning", "a line that ends in CR LF", "ends it in LF"),
    "L106": Check(lines.inner_cr, "error", "a carriage return inside a line", blocks_fix=True),
    "L107": Check(lines.nul, "error", "a NUL character"),
    "L108": Check(
        lines.separators, "warning", "other white space than in the first row", _WHITE_SPACE
    ),
    "L109": Check(lines.final_newline, "warning", "no line end after the last line", "adds it"),
    "L110": Check(lines.comment_row, "warning", "a comment that looks like a row"),
    "L111": Check(lines.long_line, "error", "a line that is longer than 64 KiB", blocks_fix=True),
}

TOPIC_CHECKS: dict[str, Check] = {
    "L203": Check(
        constants.second_column, "warning", "a second column other than `Q0`", "writes `Q0`"
    ),
    "L301": Check(ids.unknown_topic, "error", "a query that is not in `--topics`"),
    "L303": Check(
        ids.topic_returns, "warning", "rows of a query that are not together", "groups them"
    ),
    "L305": Check(ids.usable_query_id, "error", "a query_id that breaks the rules for ids"),
    "L306": Check(ids.query_id_pattern, "error", "a query_id that the track does not have"),
    "L401": Check(
        ids.duplicate_doc,
        "error",
        "a doc that a query has twice, in different rows",
        blocks_fix=True,
    ),
    "L402": Check(ids.repeated_row, "error", "a row that appears twice", "removes the second one"),
    "L403": Check(ids.usable_doc_id, "error", "a doc_id that breaks the rules for ids"),
    "L404": Check(ids.doc_id_pattern, "error", "a doc_id that the track does not have"),
    "L405": Check(ids.unknown_doc, "error", "a doc that is not in `--corpus`"),
    "L501": Check(
        numbers.whole_rank,
        "error",
        "a rank that is not a whole number",
        _BY_SCORE,
        needs_scores=True,
    ),
    "L502": Check(
        numbers.first_rank,
        "warning",
        "a first rank that the track does not accept",
        "counts from 1",
    ),
    "L503": Check(
        numbers.rank_gaps, "warning", "a gap in the ranks of a query", "makes them consecutive"
    ),
    "L504": Check(
        numbers.equal_ranks, "error", "a rank that a query has twice", _BY_SCORE, needs_scores=True
    ),
    "L505": Check(
        numbers.ranks_against_scores,
        "error",
        "a higher score at a lower rank",
        _BY_SCORE,
        needs_scores=True,
    ),
    "L506": Check(
        numbers.line_order, "warning", "rows that are not in the order of their ranks", "sorts them"
    ),
    "L601": Check(numbers.number_score, "error", "a score that is not a number", blocks_fix=True),
    "L602": Check(
        numbers.finite_score, "error", "a score that is not finite in float32", blocks_fix=True
    ),
    "L603": Check(numbers.tied_scores, "warning", "equal scores of a query", _TIES),
    "L604": Check(
        numbers.float32_ties,
        "warning",
        "scores that are equal in float32, but not in float64",
        _TIES,
    ),
    "L605": Check(numbers.tie_at_cutoff, "warning", "a tie at rank 10, 100 or 1,000", _TIES),
    "L701": Check(ids.too_many_docs, "error", "more docs for a query than the track accepts"),
    "L801": Check(
        against.constant_scores,
        "warning",
        "three or more docs of a query that all have the same score",
    ),
    "L901": Check(
        against.new_doc, "error", "a doc that `--first-stage` does not have for the query"
    ),
    "L902": Check(against.lost_docs, "warning", "docs of `--first-stage` that are lost"),
    "L907": Check(against.excluded_doc, "error", "a doc that `--exclude` leaves out"),
    "L906": Check(
        against.judged_id_form,
        "error",
        "a doc_id that differs from a judged one in prefix or zeros",
    ),
}

RUN_CHECKS: dict[str, Check] = {
    "L112": Check(lines.no_rows, "error", "a file without rows", blocks_fix=True),
    "L201": Check(constants.several_run_tags, "error", "more than one run tag"),
    "L202": Check(constants.run_tag_pattern, "error", "a run tag that the track does not accept"),
    "L204": Check(constants.metadata, "error", "a block of ir_metadata that cannot be parsed"),
    "L205": Check(constants.metadata_tag, "error", "a tag in ir_metadata that is not the run tag"),
    "L302": Check(ids.missing_topic, "warning", "a query of `--topics` without rows"),
    "L304": Check(
        ids.leading_zeros, "warning", "two numeric query_ids that differ in leading zeros only"
    ),
    "L702": Check(
        ids.fewer_docs, "warning", "with a track: fewer docs for a query than for others"
    ),
    "L802": Check(
        against.identical_rankings,
        "warning",
        "two queries with the same five or more docs in one order",
    ),
    "L803": Check(
        against.same_first_doc, "warning", "three or more queries that all have the same first doc"
    ),
    "L804": Check(
        against.mixed_activations,
        "warning",
        "scores from 0 to 1 for some queries, others for the rest",
    ),
    "L805": Check(
        against.own_docs,
        "warning",
        "the doc of the query's own id among the first ten of many queries",
    ),
    "L903": Check(against.lost_topic, "warning", "a query of `--first-stage` without rows"),
    "L904": Check(against.missing_judged_topic, "warning", "a query of `--qrels` without rows"),
    "L905": Check(
        against.nothing_judged,
        "error",
        "no judged doc among the first ten of any query of `--qrels`, or any in hardly one query",
    ),
}

# These find rows that no command can use: `--max-bad-rows` counts such rows.
UNUSABLE = frozenset({"L101", "L103", "L106", "L107", "L305", "L403", "L501", "L601", "L602"})

# The same entries: a check that is added to one of the three is here too.
CHECKS: ChainMap[str, Check] = ChainMap(LINE_CHECKS, TOPIC_CHECKS, RUN_CHECKS)

"""Checks of the columns that are the same in every row, and of the metadata."""

from beamrank.config.yaml import parse_yaml
from beamrank.errors import ConfigError
from beamrank.formats.values import shown
from contrib.lint.check import Found, RunState, matches
from contrib.lint.run_rows import TopicRows

_START, _END = b"ir_metadata.start", b"ir_metadata.end"


def several_run_tags(run: RunState) -> Found:
    tags = sorted(run.run_tags, key=run.run_tags.__getitem__)
    for tag in tags[1:]:
        yield (
            run.run_tags[tag],
            f"a second run tag, {shown(tag)}: the first row has {shown(tags[0])}",
        )


def run_tag_pattern(run: RunState) -> Found:
    pattern = run.track.run_tag
    for tag, line in run.run_tags.items():
        if pattern is not None and not matches(pattern, tag):
            yield (
                line,
                f"the run tag {shown(tag)} does not match {pattern.decode()}, which the track "
                "demands",
            )


def second_column(topic: TopicRows, _run: RunState) -> Found:
    if "Q0" not in topic.format.columns:
        return
    texts = topic.column("Q0")
    if texts.count(b"Q0") < len(texts):
        wrong = [i for i, text in enumerate(texts) if text != b"Q0"]
        yield (
            topic.lines[wrong[0]],
            f"column 2 of {len(wrong):,} rows of query {topic.shown} is not `Q0`",
        )


def metadata(run: RunState) -> Found:
    for line, content, ended in _blocks(run):
        if not ended:
            yield line, f"the metadata has no line `# {_END.decode()}`"
        values = _parsed(content)
        if isinstance(values, Exception):
            yield line, f"the metadata is not YAML: {values}"
        elif not isinstance(values, dict):
            yield line, "the metadata is not a YAML mapping"


def metadata_tag(run: RunState) -> Found:
    for line, content, _ in _blocks(run):
        values = _parsed(content)
        tag = values.get("tag") if isinstance(values, dict) else None
        tags = [tag.decode("utf-8", "backslashreplace") for tag in run.run_tags]
        if tag is not None and tags and str(tag) not in tags:
            yield line, f"the metadata has the tag {str(tag)!r}, but the rows have {tags[0]!r}"


def _blocks(run: RunState) -> list[tuple[int, list[bytes], bool]]:
    """The first line of each metadata block, its content, and whether it ends."""
    blocks: list[tuple[int, list[bytes], bool]] = []
    inside = False
    for line, comment in run.comments.items():
        text = comment.strip().removeprefix(b"#").removeprefix(b" ")
        if text.strip() == _START:
            inside = True
            blocks.append((line, [], False))
        elif text.strip() == _END and inside:
            inside = False
            blocks[-1] = (*blocks[-1][:2], True)
        elif inside:
            blocks[-1][1].append(text)
    return blocks


def _parsed(content: list[bytes]) -> object:
    """The values of a block, or why it has none."""
    try:
        return parse_yaml(b"\n".join(content).decode(), "ir_metadata")
    except (ConfigError, UnicodeDecodeError) as error:
        return error

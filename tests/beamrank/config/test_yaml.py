"""Malformed and hostile YAML is an error with its line, at once; nothing of the text is quoted."""

import re

import pytest

from beamrank.config.load import load_config
from beamrank.config.yaml import parse_yaml
from beamrank.errors import ConfigError, PreflightError

_BASE = (
    "corpus: {path: c, format: tsv}\ntopics: {path: t, format: tsv}\ncandidates: {run: "
    "r}\noutput: o\n"
)
_BILLION = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcde", "bcdef", strict=True)
)
_DEEP = "a: &a [[[[[[x]]]]]]\n" + "".join(
    f"{new}: &{new} [[[[[[*{old}]]]]]]\n" for old, new in zip("abc", "bcd", strict=True)
)

_MALFORMED = [
    (_BILLION, r"line \d: it holds more than 50,000 values, aliases \(\*name\) written out"),
    (_DEEP, r"line \d: it is nested more than 20 levels deep"),
    ("run_tag: &a [*a]", "line 1: it is nested more than 20 levels deep"),
    ("a: *b", "line 1: found undefined alias"),
    ("mono: {k: !!int x}", "line 1: a number is not written as plain digits"),
    ("run_tag: !!bool x", "line 1: the value cannot be read as bool"),
    ("mono: !!map [1]", "line 1: the value cannot be read as map"),
    ("measures: !!seq {}", "line 1: the value cannot be read as seq"),
    (f"mono: {{k: {'9' * 5000}}}", "line 1: the value cannot be read as int"),
    (f"mono: {{k: {'1:' * 5000}1}}", "line 1: a number is not written as plain digits"),
    (f"measures: {'[' * 5000}", "line 1: it is nested more than 20 levels deep"),
    (f"{'- ' * 5000}a", "line 1: it is nested more than 20 levels deep"),
    ("{a: " * 5000, "line 1: it is nested more than 20 levels deep"),
    ("run_tag: a\nqrels: q\nrun_tag: b", "line 3: the key run_tag appears twice"),
    ("1: a", "line 1: a key is not text"),
    ("yes: a", "line 1: a key is not text"),
    ("[a]: b", "line 1: a key is not text"),
    ("qrels: 'a\0b'", r"line 1: the character U\+0000 is not allowed"),
    (
        'run_tag: x\nqrels: "a\\0b"',
        "line 2: the text holds a character that is not Unicode, or NUL",
    ),
    ('qrels: "\\ud800"', "line 1: the text holds a character that is not Unicode, or NUL"),
    ('run_tag: x\nqrels: "\\U00110000"', "line 2: an escape is not a character of Unicode"),
    ("qrels: \x1b[31m", r"line 1: the character U\+001B is not allowed"),
    ("qrels: !!binary aGk=", "line 1: the tag is not known"),
    ("qrels: !!timestamp 2001-99-99", "line 1: the tag is not known"),
    ("a: 1\n---\nb: 2", "line 2: expected a single document"),
    ("a: 'never closed", "line 1: while scanning a quoted scalar: found unexpected end of stream"),
    ("a:\n\t- b", "line 2: while scanning for the next token"),
]


def test_truth_values_of_a_list_are_words():
    assert parse_yaml("a: [yes, no, true, Off]\nb: yes", "here") == {
        "a": ["yes", "no", "true", "Off"],
        "b": True,
    }


def test_alias_gets_a_value_of_its_own():
    found = parse_yaml("corpus: &c {path: p, fields: [a, b]}\ndev: {corpus: *c}", "here")
    assert found == {
        "corpus": {"path": "p", "fields": ["a", "b"]},
        "dev": {"corpus": {"path": "p", "fields": ["a", "b"]}},
    }
    assert found["corpus"] is not found["dev"]["corpus"]
    assert found["corpus"]["fields"] is not found["dev"]["corpus"]["fields"]


@pytest.fixture
def config(tmp_path):
    def write(content):
        (tmp_path / "c.yaml").write_bytes(content)
        return str(tmp_path / "c.yaml")

    return write


@pytest.mark.timeout(10)
@pytest.mark.parametrize(("text", "message"), _MALFORMED, ids=lambda each: each[:30])
def test_malformed_yaml_is_refused_with_its_line(config, text, message):
    path = config(text.encode())
    with pytest.raises(ConfigError, match=rf"{re.escape(path)} .*{message}"):
        load_config(path)
    path = config(_BASE.encode())
    with pytest.raises(ConfigError, match=rf"^--set run_tag: .*{message}"):
        load_config(path, [f"run_tag={text}"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"run_tag: a\nqrels: \xff\n", r"UTF-8 .*line 2"),
        ("run_tag: a".encode("utf-16"), r"UTF-8 .*line 1"),
        (b"#" * 100_000_000, "65,536"),
        (b"", "`corpus:`"),
        (b"- a list", "keys"),
        (b"2001-01-01", r"`corpus:` .*str"),
        (b"\x1f\x8b\x08\x00", r"UTF-8 .*line 1"),
    ],
    ids=["latin", "utf16", "large", "empty", "list", "date", "gzip"],
)
def test_file_without_keys_is_refused(config, content, message):
    with pytest.raises(ConfigError, match=message):
        load_config(config(content))


def test_configuration_must_be_a_regular_file(tmp_path):
    for path, message in (
        ("/dev/zero", "is a device"),
        (str(tmp_path), "cannot read the configuration"),
        (str(tmp_path / "none.yaml"), r"none\.yaml"),
    ):
        with pytest.raises(PreflightError, match=message):
            load_config(path)


def test_plain_values_are_read():
    text = (
        "a: [1, -2, +16, 1.5, 1e3, .5]\nb: {c: true, d: null, e: ~, f: 'x', g: \"y\"}\nh: "
        "2001-99-99\ni: |\n  j\n"
    )
    assert parse_yaml(text, "here") == {
        "a": [1, -2, 16, 1.5, "1e3", 0.5],
        "b": {"c": True, "d": None, "e": None, "f": "x", "g": "y"},
        "h": "2001-99-99",
        "i": "j\n",
    }
    assert parse_yaml("\ufeffa: 1", "here") == {"a": 1}


@pytest.mark.parametrize("number", ["010", "0x10", "1_000", "1:30", "0b11", "-010", "00"])
def test_integers_in_other_forms_than_digits_are_refused(number):
    with pytest.raises(ConfigError, match=r"line 1: .*plain digits"):
        parse_yaml(f"mono: {{k: {number}}}", "here")


@pytest.mark.parametrize("number", ["1_0.5", "1_0.0e+2", "1.5_0"])
def test_numbers_with_underscores_are_refused(number):
    with pytest.raises(ConfigError, match=r"line 1: .*float"):
        parse_yaml(f"bm25: {{k1: {number}}}", "here")


def test_quoted_digits_and_octal_of_later_yaml_are_text():
    assert parse_yaml("a: '010'\nb: 0o10\nc: 0\nd: -3", "here") == {
        "a": "010",
        "b": "0o10",
        "c": 0,
        "d": -3,
    }

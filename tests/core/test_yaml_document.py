"""Malformed and hostile YAML: an error with the line, at once, and no traceback; nothing of the text is quoted."""

import re

import pytest

from beamrank.config.run import load_config
from beamrank.config.yaml_document import parse_yaml
from beamrank.errors import ConfigError, PreflightError

_BASE = "corpus: {path: c, format: tsv}\ntopics: {path: t, format: tsv}\ncandidates: {run: r}\noutput: o\n"
_BILLION = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcde", "bcdef", strict=True)
)
_DEEP = "a: &a [[[[[[x]]]]]]\n" + "".join(
    f"{new}: &{new} [[[[[[*{old}]]]]]]\n" for old, new in zip("abc", "bcd", strict=True)
)

_MALFORMED = [
    (_BILLION, r"line 5: aliases \(\*name\) stand for more than 10,000 values"),
    (_DEEP, "line 4: it is nested more than 20 levels deep"),
    ("run_tag: &a [*a]", r"line 1: an alias \(\*name\) refers to what it is a part of"),
    ("a: &a {b: &b {c: *a}}", "line 1: an alias"),
    ("a: *b", "line 1: found undefined alias"),
    ("mono: {k: !!int x}", "line 1: the value cannot be read as int"),
    ("mono:\n  k: !!int ''", "line 2: the value cannot be read as int"),
    ("run_tag: !!bool x", "line 1: the value cannot be read as bool"),
    ("run_tag: !!float x", "line 1: the value cannot be read as float"),
    ("mono: !!map [1]", "line 1: the value cannot be read as map"),
    ("measures: !!seq {}", "line 1: expected a sequence node"),
    (f"mono: {{k: {'9' * 5000}}}", "line 1: the value cannot be read as int"),
    (f"mono: {{k: 0x{'f' * 30}}}", "line 1: the value cannot be read as int"),
    (f"mono: {{k: {'1:' * 5000}1}}", "line 1: the value cannot be read as int"),
    (f"measures: {'[' * 5000}", "line 1: it is nested more than 20 levels deep"),
    (f"measures: {'[' * 5000}{']' * 5000}", "line 1: it is nested more than 20 levels deep"),
    (f"{'- ' * 5000}a", "line 1: it is nested more than 20 levels deep"),
    (f"{'? ' * 5000}a", "line 1: it is nested more than 20 levels deep"),
    ("{a: " * 5000, "line 1: it is nested more than 20 levels deep"),
    ("run_tag: a\nqrels: q\nrun_tag: b", "line 3: the key run_tag appears twice"),
    ("mono: {k: 1, k: 1}", "line 1: the key k appears twice"),
    ("1: a", "line 1: a key is not text"),
    ("yes: a", "line 1: a key is not text"),
    ("null: a", "line 1: a key is not text"),
    ("[a]: b", "line 1: a key is not text"),
    ("{a: b}: c", "line 1: a key is not text"),
    ("qrels: 'a\0b'", r"line 1: the character U\+0000 is not allowed"),
    ('run_tag: x\nqrels: "a\\0b"', "line 2: the text holds a character that is not Unicode, or NUL"),
    ('qrels: "\\ud800"', "line 1: the text holds a character that is not Unicode, or NUL"),
    ('run_tag: x\nqrels: "\\U00110000"', "line 2: an escape stands for no character of Unicode"),
    ("qrels: \x1b[31m", r"line 1: the character U\+001B is not allowed"),
    ("qrels: !!binary aGk=", "line 1: the tag is not known"),
    ("qrels: !!set {a}", "line 1: the tag is not known"),
    ("qrels: !!timestamp 2001-99-99", "line 1: the tag is not known"),
    ("a: 1\n---\nb: 2", "line 2: expected a single document"),
    ("a: 'never closed", "line 1: while scanning a quoted scalar: found unexpected end of stream"),
    ("a:\n\t- b", "line 2: while scanning for the next token"),
]


def test_an_alias_stands_for_a_value_of_its_own():
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
    with pytest.raises(ConfigError, match=rf"{re.escape(path)} is not valid YAML: {message}"):
        load_config(path)
    path = config(_BASE.encode())
    with pytest.raises(ConfigError, match=rf"^--set run_tag: the value is not valid YAML: {message}"):
        load_config(path, [f"run_tag={text}"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"run_tag: a\nqrels: \xff\n", "is not UTF-8 text: line 2: invalid start byte"),
        ("run_tag: a".encode("utf-16"), "is not UTF-8 text: line 1"),
        (b"#" * 100_000_000, "is not a configuration: it is larger than 65,536 bytes"),
        (b"", "must hold keys such as `corpus:`"),
        (b"2001-01-01", "must hold keys such as `corpus:` and `topics:`, not str"),
        (b"\x1f\x8b\x08\x00", "is not UTF-8 text: line 1"),
    ],
    ids=["latin", "utf16", "large", "empty", "date", "gzip"],
)
def test_what_is_not_a_configuration_is_refused(config, content, message):
    with pytest.raises(ConfigError, match=message):
        load_config(config(content))


def test_an_endless_file_is_refused():
    with pytest.raises(PreflightError, match="is a device"):
        load_config("/dev/zero")


def test_a_folder_is_not_a_configuration(tmp_path):
    with pytest.raises(PreflightError, match="cannot read the configuration"):
        load_config(str(tmp_path))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("=1", "must look like mono.k=100"),
        ("a..b=1", "must look like mono.k=100"),
        (f"{'a.' * 5000}a=1", r"--set (a\.){40}\.\.\. must look like mono.k=100"),
        (f"{'a' * 5000}=1", r"a{80}\.\.\.: unknown key"),
        ("candidates.k=true", "candidates: k is True: true, false, yes, no, on and off are not values of it"),
        ("threads=no", "threads is False"),
        ("output=''", "output: String should have at least 1 character"),
        ("corpus.path=''", r"corpus\.path: String should have at least 1 character"),
        ("qrels=''", "qrels: String should have at least 1 character"),
        ("bm25.k1=.inf", "bm25.k1: Input should be a finite number"),
        ("bm25.k1=1e400", "bm25.k1: Input should be a finite number"),
        ("stall_minutes=.nan", "stall_minutes: Input should be a finite number"),
        ("candidates.k=2147483648", "candidates.k: Input should be less than or equal to 2147483647"),
        ("run_formats=[]", "run_formats: Tuple should have at least 1 item"),
        ("run_formats=[trec, x]", "run_formats.1: 'x' is unknown; accepted: trec, msmarco"),
    ],
    ids=lambda each: each[:30],
)
def test_wrong_overrides_are_refused(config, override, message):
    with pytest.raises(ConfigError, match=message) as refusal:
        load_config(config(_BASE.encode()), [override])
    assert len(str(refusal.value)) < 1000


def test_many_wrong_keys_are_a_short_error(config):
    content = _BASE + "".join(f"key{number}: 1\n" for number in range(3000))
    with pytest.raises(ConfigError, match=r"and 2,990 more$"):
        load_config(config(content.encode()))


def test_plain_values_are_read_as_yaml_has_them():
    text = "a: [1, -2, 0x10, 1.5, 1e3, .5]\nb: {c: true, d: null, e: ~, f: 'x', g: \"y\"}\nh: 2001-99-99\ni: |\n  j\n"
    assert parse_yaml(text, "here") == {
        "a": [1, -2, 16, 1.5, "1e3", 0.5],
        "b": {"c": True, "d": None, "e": None, "f": "x", "g": "y"},
        "h": "2001-99-99",
        "i": "j\n",
    }
    assert parse_yaml("\ufeffa: 1", "here") == {"a": 1}

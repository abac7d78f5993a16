import pytest

from models.training.data.texts import normal_text


@pytest.mark.parametrize(
    "text",
    [
        "PARIS is\tthe  capital",
        "\ufeffParis\u00a0is the\u2003capital\n",
        "Pa\u00adris is\u200b the cap\u2060ital\u0000",
        "\uff30aris is the capital",
        "Paris i\ufe0fs the\u3164 capital",
    ],
)
def test_copies_of_a_text_are_the_same(text):
    assert normal_text(text) == "paris is the capital"


def test_unicode_forms_of_a_text_are_the_same():
    assert normal_text("Caf\u00e9 Stra\u00dfe \ufb01ne") == normal_text("CAFE\u0301 STRASSE fine")
    assert normal_text("\u0130") == normal_text("i\u0307")


@pytest.mark.parametrize("text", ["", " \t\n", "\u00a0 \u200b", "\ufeff\u2063\u034f", "\u3164\u2800", "\ufffd\u0001"])
def test_text_of_invisible_characters_is_empty(text):
    assert normal_text(text) == ""


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("e", "\u00e9"), ("a b", "ab"), ("\u4e2d", "\u56fd")])
def test_other_texts_are_not_the_same(one, other):
    assert normal_text(one) != normal_text(other)

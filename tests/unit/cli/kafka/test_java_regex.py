"""Regular expressions of Java's in Python."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.java.java_regex import RegexError, compile_regex, split


@pytest.mark.parametrize(
    ("pattern", "text", "parts"),
    [
        (",", "a,b,,c,,", ["a", "b", "", "c"]),
        (",", "", [""]),
        (",", ",a", ["", "a"]),
        (",", ",", [""]),
        ("", "ab", ["a", "b"]),
        ("(;)|,", "a;b,c", ["a", "b", "c"]),
    ],
)
def test_texts_are_split_as_java_splits_them(pattern: str, text: str, parts: list[str]) -> None:
    assert split(compile_regex(pattern), text) == parts


def test_what_is_quoted_means_itself() -> None:
    assert compile_regex(r"\Qa.b\E.").fullmatch("a.bc")
    assert not compile_regex(r"\Qa.b\E.").fullmatch("aXbc")


def test_classes_of_characters_have_javas_names() -> None:
    assert compile_regex(r"\p{Alpha}+-\p{Digit}{2}[\p{Upper}_]").fullmatch("ab-12_")
    assert not compile_regex(r"\P{Digit}+").fullmatch("a1")


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("t[", "Unclosed character class near index 1\nt[\n ^"),
        ("[", "Unclosed character class near index 0\n[\n^"),
        ("(t", "Unclosed group near index 2\n(t"),
        ("*t", "Dangling meta character '*' near index 0\n*t\n^"),
        ("t)", "Unmatched closing ')' near index 0\nt)\n^"),
    ],
)
def test_what_is_wrong_is_said_as_java_says_it(pattern: str, complaint: str) -> None:
    with pytest.raises(RegexError) as refused:
        compile_regex(pattern)
    assert str(refused.value) == complaint

"""Expressions of topic names: the language, against Python's own where the two agree, and the bounds."""

import contextlib
import itertools
import re
import time
from random import Random

import pytest

from anabranch.base.errors import Invalid
from anabranch.groups.consumer_regex_match import TopicPattern
from tests.support.speed import slowness

NAMES = ["".join(letters) for size in range(1, 5) for letters in itertools.product("aB.", repeat=size)]


def expression(chance, depth):
    if depth == 0:
        return chance.choice(
            ["a", "B", r"\.", ".", "[aB]", "[^a]", r"\w", r"[A-Z.]", r"\W", "(?i:b)", "[^a-zA-Z]"]
        )
    part = expression(chance, depth - 1)
    match chance.randrange(6):
        case 0:
            return f"({part}|{expression(chance, depth - 1)})"
        case 1:
            return f"(?:{part}){chance.choice(['*', '+', '?', '{2}', '{1,2}', '{1,}', '*?', '{0,1}?'])}"
        case 2:
            return chance.choice(["^", r"\b", r"\B"]) + part
        case 3:
            return part + chance.choice(["$", r"\b", r"\B"])
        case _:
            return part + expression(chance, depth - 1)


@pytest.mark.parametrize("seed", range(300))
def test_as_pythons(seed):
    pattern = expression(Random(seed), 4)
    assert TopicPattern(pattern).matching(NAMES) == {n for n in NAMES if re.fullmatch(pattern, n)}


@pytest.mark.parametrize(
    ("pattern", "matches", "fails"),
    [
        ("orders-.*", "orders-eu", "my-orders-eu"),
        ("^(orders|bills)$", "bills", "bill"),
        (r"\Qa.b\E+", "a.b", "axb"),
        (r"a\x2eb", "a.b", "axb"),
        (r"a\x{2e}b", "a.b", "axb"),
        ("[[:alpha:]]+", "abc", "ab1"),
        ("[[:^digit:]]+", "abc", "ab1"),
        ("(?P<region>eu|us)-x", "us-x", "jp-x"),
        ("(?i)ORDERS", "orders", "orderz"),
        ("(?i:a)b", "Ab", "AB"),
        ("a{,3}", "a{,3}", "aaa"),
        ("[]a]+", "a]", "b"),
        (r"[\d-]+", "1-2", "a"),
        (r"\Aa\z", "a", "aa"),
        ("a|", "a", "b"),
        ("(?-i)a", "a", "A"),
    ],
)
def test_re2s_language(pattern, matches, fails):
    assert TopicPattern(pattern).matching([matches, fails]) == {matches}


def test_what_is_not_ascii_matches_no_name():
    assert TopicPattern("é|[à-ü]").matching(["e", "a"]) == frozenset()
    assert TopicPattern("[a-é]").matching(["z", "A"]) == {"z"}


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", "a)", "[", "[a", "*", "a**", "a{2}{3}", "a{3,2}", "a{1001}", "\\", r"\1", r"\p{L}", r"\xg"),
        *("(?=a)", "(?!a)", "(?<=a)", "(?<n", "(?", "(?x)a", "[z-a]", "[[:what:]]", "(" * 200, "a" * 5000),
        *("((a{100}){100}){100}", "(((){1000}){1000}){1000}", r"\x{110000}"),
    ],
)
def test_what_is_refused(pattern):
    with pytest.raises(Invalid):
        TopicPattern(pattern)


def test_no_expression_takes_long():
    names = ["a" * 249, *(f"topic-{'ab' * 60}-{i}" for i in range(2000))]
    for pattern in ("(a+)+b", "(a|aa)+$", "(a*)*b", "(.*a){20}", "(.*a.*b){40}c", "(x+x+)+y"):
        start = time.process_time()
        with contextlib.suppress(Invalid):
            TopicPattern(pattern).matching(names)
        spent_s = time.process_time() - start
        assert spent_s < 5 * slowness()

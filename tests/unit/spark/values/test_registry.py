"""What a registry is asked, and what becomes of its answers.  No network: requests end in a function."""

import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from http.client import BadStatusLine
from typing import Any

import pytest

from anabranch.base.errors import AnabranchError, Invalid, NotFound, Unavailable
from anabranch.spark.options import Options
from anabranch.spark.values import registry as module
from anabranch.spark.values.registry import Lookup, Registry, registry_of

Answers = Callable[..., list[urllib.request.Request]]
HERE = Registry("http://127.0.0.1:1", 5.0)
LONG = b'{"schema": "\\"long\\"", "id": 7}'


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Requests are answered with these, one after the other; what was asked."""
    asked: list[urllib.request.Request] = []

    def give(*told: bytes | Exception) -> list[urllib.request.Request]:
        left = list(told)

        def urlopen(request: urllib.request.Request, timeout: float) -> Any:
            asked.append(request)
            one = left.pop(0)
            if isinstance(one, Exception):
                raise one
            return io.BytesIO(one)

        monkeypatch.setattr(urllib.request, "urlopen", urlopen)
        return asked

    monkeypatch.setattr(module, "_known", {})
    return give


def named(url: str, **other: str) -> Registry:
    given = {"schema.registry.url": url, **other}
    return registry_of(Options(given, given, "a read"))


def test_a_password_in_the_address_is_used_and_not_told(answers: Answers) -> None:
    found = named("http://me:s%40cret@registry.example.com:8081/registry/")
    assert (found.url, found.user) == ("http://registry.example.com:8081/registry", "me:s@cret")
    answers(OSError("no route"))
    with pytest.raises(Unavailable) as error:
        found.version("t-value", None)
    assert "cret" not in str(error.value)
    with pytest.raises(Invalid) as wrong:
        named("htp://me:secret@registry.example.com")
    assert "secret" not in str(wrong.value)
    other = named(
        "http://me:secret@registry.example.com", **{"schema.registry.basic.auth.user.info": "you:too"}
    )
    assert other.user == "you:too"


def test_a_password_does_not_go_where_an_answer_leads(answers: Answers) -> None:
    asked = answers(LONG)
    named("http://me:secret@registry.example.com").by_id(7)
    assert "Authorization" not in asked[0].headers
    assert asked[0].unredirected_hdrs["Authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (BadStatusLine("SSH-2.0"), Unavailable, "cannot be reached"),
        (b"<html>", Invalid, "not answered with JSON"),
        (b"[]", Invalid, "has no schema"),
        (b"{}", Invalid, "has no schema"),
    ],
)
def test_what_is_no_registry_is_said_to_be_none(
    answers: Answers, answer: Any, kind: type[AnabranchError], said: str
) -> None:
    answers(answer)
    with pytest.raises(kind, match=said):
        HERE.version("t-value", None)


def test_a_registry_that_is_away_for_a_moment_is_waited_for(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a query that is under way: its broker may be starting again."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda pause: now.__setitem__(0, now[0] + pause))
    asked = answers(OSError("refused"), OSError("refused"), LONG)
    assert Lookup(HERE, 7).schema().text == '"long"'
    assert Lookup(HERE, 7).schema().text == '"long"'
    assert len(asked) == 3, "and asked for once"
    answers(*[OSError("refused")] * 100)
    with pytest.raises(Unavailable, match="cannot be reached: refused"):
        Lookup(HERE, 8).schema()
    assert 3 < now[0] < 6


def test_what_is_not_there_is_asked_for_again(answers: Answers) -> None:
    told = io.BytesIO(json.dumps({"message": "no"}).encode())
    missing = urllib.error.HTTPError(HERE.url, 404, "", Message(), told)
    answers(missing, LONG)
    with pytest.raises(NotFound, match="no"):
        Lookup(HERE, 7).schema()
    assert not Lookup(HERE, 7).is_known
    assert Lookup(HERE, 7).schema().id == 7

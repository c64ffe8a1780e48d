import pytest

from anabranch.base.errors import Invalid, InvalidConfig
from anabranch.log.config import TOPIC_OPTIONS
from anabranch.server.config_changes import Change, Op, altered, checked_changes


@pytest.mark.parametrize(
    ("current", "op", "value", "result"),
    [
        (None, Op.SET, "compact", "compact"),
        ("delete", Op.SET, "compact", "compact"),
        ("delete", Op.DELETE, "", None),
        (None, Op.DELETE, "", None),
        (None, Op.APPEND, "compact", "delete,compact"),
        ("compact", Op.APPEND, "compact,delete", "compact,delete"),
        ("", Op.APPEND, "compact", "compact"),
        (None, Op.SUBTRACT, "delete", ""),
        (None, Op.SUBTRACT, "compact", "delete"),
        ("compact,delete", Op.SUBTRACT, "compact", "delete"),
        ("delete", Op.APPEND, "", "delete,"),
    ],
)
def test_each_operation(current: str | None, op: Op, value: str, result: str | None) -> None:
    before = {"retention.ms": "1"} | ({} if current is None else {"cleanup.policy": current})
    after = altered(before, [Change("cleanup.policy", op, value)], TOPIC_OPTIONS)
    assert after.get("cleanup.policy") == result
    assert after["retention.ms"] == "1"


@pytest.mark.parametrize("name", ["retention.ms", "no.such"])
@pytest.mark.parametrize("op", [Op.APPEND, Op.SUBTRACT])
def test_only_lists_take_items(name: str, op: Op) -> None:
    with pytest.raises(InvalidConfig) as caught:
        altered({}, [Change(name, op, "1")], TOPIC_OPTIONS)
    assert str(caught.value) == f"Can't {op.name} to key {name} because its type is not LIST."


def test_a_requests_changes_are_checked() -> None:
    assert checked_changes([("a", 0, "1"), ("b", 1, None)]) == [
        Change("a", Op.SET, "1"),
        Change("b", Op.DELETE, ""),
    ]
    with pytest.raises(Invalid, match="Error due to duplicate config keys"):
        checked_changes([("a", 0, "1"), ("a", 1, None)])
    with pytest.raises(Invalid, match="Null value not supported for : a, c"):
        checked_changes([("a", 0, None), ("b", 1, None), ("c", 2, None)])
    with pytest.raises(Invalid, match="Unknown operations type 7"):
        checked_changes([("a", 7, "1")])

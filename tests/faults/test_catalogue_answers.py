"""Whether an answer is right is judged as a person reads it: what stands first, where, and in which words."""

from typing import Any

import pytest

from tests.faults.catalogue import answer
from tests.faults.catalogue.fault import Expected

NODES = ["left", "right"]
WANTED = Expected("RANK_FAILED|RANK_KILLED", rank=3, node=1, says=["ValueError", "train.py:{here}"], shows=["shard 7"])


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "code": "RANK_FAILED", "level": "fail", "message": "Rank 3 on right: ValueError: no (train.py:9 in load)",
        "hint": "Mend it.", "where": [{"rank": 3, "nodeRank": 1, "node": "right"}], "actions": [],
        "evidence": [{"message": "Its last lines:", "lines": ["reading shard 7"]}], **changes,
    }  # fmt: skip


def lacks(*findings: dict[str, Any], wanted: Expected = WANTED) -> list[str]:
    said = answer.find_first_finding({"findings": list(findings), "summary": "All is well."})
    return answer.list_missing_parts(wanted, said, NODES, {"here": 9})


def test_a_complete_answer_is_right():
    assert lacks(finding()) == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"code": "HANG"}, "code RANK_FAILED|RANK_KILLED"),
        ({"where": [{"rank": 2, "nodeRank": 1, "node": "right"}]}, "rank 3"),
        ({"where": [{"rank": 3, "nodeRank": 0, "node": "left"}], "message": "ValueError train.py:9"}, "node right"),
        ({"message": "Rank 3 on right: ValueError: no (train.py:8)"}, "says train.py:{here}"),
        ({"evidence": []}, "shows shard 7"),
        ({"hint": ""}, "what to do next"),
    ],
)
def test_an_incomplete_answer_is_wrong(changes, what):
    assert lacks(finding(**changes)) == [what]


def test_only_the_first_finding_counts():
    assert "code RANK_FAILED|RANK_KILLED" in lacks(finding(code="STRAGGLER", level="warn"), finding())


def test_an_informational_finding_is_no_alarm():
    informed = finding(level="info")
    assert answer.list_alarms({"findings": [informed]}) == []
    assert lacks(informed) == []
    assert lacks(finding(code="QUEUED", level="info"), finding()) == []


def test_silence_is_no_answer():
    assert lacks() != []
    between = Expected("NETWORK_CUT", node=(0, 1))
    assert "node left" in lacks(finding(), wanted=between)

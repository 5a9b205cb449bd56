"""A project's own rules of diagnosis: who may see and set them, what is wrong with them, what they make of a log."""

import pytest

from apps.accounts.models import AuditEvent
from fermi.diagnosis import rules
from tests.api.conftest import Api

pytestmark = pytest.mark.database

PATH = "/projects/project-one/diagnosis-rules"
OWN = """
[NO_SEAT]
lines = ["licence server {server:name} says no: {seats:int} seats"]
message = "All {seats} seats of {server} are taken."
hint = "Ask the tools team for one."
elsewhere = true
"""
WRONG = """
[NO_SEAT]
lines = ["{server} says no", "fine {one}{two}"]
message = "All {seats} are taken."
elswhere = true

[lower]
lines = ["some words"]
message = "m"
actions = ["DANCE"]
"""


def test_maintainers_set_rules_members_read_them_strangers_see_nothing(
    owner: Api, colleague: Api, stranger: Api
) -> None:
    assert owner.get(PATH).data == {"text": "", "updatedAt": None, "updatedBy": ""}
    assert colleague._send("PUT", PATH, {"text": OWN}).status == 403
    made = owner._send("PUT", PATH, {"text": OWN})
    assert (made.status, made.data["text"]) == (200, OWN)
    assert colleague.get(PATH).data["text"] == OWN
    assert stranger.get(PATH).status == 404
    assert AuditEvent.objects.filter(action="diagnosis-rules.set").count() == 1
    assert owner._send("PUT", PATH, {"text": ""}).data["text"] == ""


def test_every_error_in_rules_is_reported_with_its_line(owner: Api) -> None:
    answer = owner._send("PUT", PATH, {"text": WRONG})
    assert answer.status == 400
    found = [(one["error"], one["message"]) for one in answer.body["errors"]]
    assert sorted(code for code, _ in found) == [
        "RULE_BEGINS_WITH_A_HOLE", "RULE_BLANK", "RULE_CODE", "RULE_HOLES_TOUCH", "RULE_KEY", "RULE_VALUE",
    ]  # fmt: skip
    assert dict(found)["RULE_KEY"].startswith("第 2 行，NO_SEAT")
    assert dict(found)["RULE_CODE"].startswith("第 7 行")
    torn = owner._send("PUT", PATH, {"text": "[A\nlines = 1"})
    assert "RULES_NOT_TOML" in torn.problems.values()
    assert owner._send("PUT", PATH, {"text": "x" * (rules.MAX_BYTES + 1)}).status == 400


def test_a_log_is_tried_against_project_and_given_rules(owner: Api) -> None:
    log = "step 3\nlicence server lic-7 says no: 42 seats\n"
    nothing = owner.post(f"{PATH}/test", {"log": log}).data
    assert (nothing["rule"], nothing["finding"]) == ("", None)
    tried = owner.post(f"{PATH}/test", {"log": log, "text": OWN}).data
    assert (tried["rule"], tried["finding"]["message"]) == ("NO_SEAT", "All 42 seats of lic-7 are taken.")
    assert owner.get(PATH).data["text"] == "", "nothing was stored"
    owner._send("PUT", PATH, {"text": OWN})
    assert owner.post(f"{PATH}/test", {"log": log}).data["rule"] == "NO_SEAT"
    ours = owner.post(f"{PATH}/test", {"log": "ModuleNotFoundError: No module named 'apex'"}).data
    assert ours["rule"] == "MODULE_MISSING"

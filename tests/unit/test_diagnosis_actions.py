"""What people may do about a finding is a closed list, and every part of it can be said."""

from dataclasses import replace

import pytest

from fermi import messages
from fermi.diagnosis import actions, advice, loss_anomalies, rules
from fermi.diagnosis.actions import ACTIONS, LABEL, Do
from fermi.diagnosis.advice import CHANGES, KNOWN, SELECT
from fermi.planning import plugins


@pytest.mark.parametrize("lang", messages.LANGUAGES)
@pytest.mark.parametrize("code", Do)
def test_every_action_says_what_it_does_with_and_without_what_it_may_name(code: Do, lang: str) -> None:
    needs, may = ({name: f"<{name}>" for name in names} for names in (ACTIONS[code].needs, ACTIONS[code].may))
    for params in (needs, {**needs, **may}):
        label, hint = messages.text(f"{LABEL}{code}", lang, **actions.take(code, **params).params)
        assert not [name for name in params if name != "nodeRank" and params[name] not in label + hint]


def test_the_best_action_comes_first_and_trying_the_same_again_last() -> None:
    anyway = actions.take(Do.CHANGE_FIELD, field=actions.ANYWAY, to="restart")
    found = [anyway, *(actions.take(code, **dict.fromkeys(ACTIONS[code].needs, "x")) for code in reversed(Do))]
    ordered = actions.in_order(found)
    assert len(ordered) == len(Do) + 1, "each has its place"
    place = {one.code: at for at, one in enumerate(ordered[:-1])}
    assert ordered[-1] is anyway
    assert place[Do.EDIT_SCRIPT] < place[Do.SEE_LOG] < place[Do.RESTART_FROM_CHECKPOINT] < place[Do.WITHOUT_NODE]
    assert place[Do.WAIT] < place[Do.CORDON] < place[Do.STOP]


def named_fields() -> set[str]:
    """The fields of a request that any advice names."""
    said = [
        *KNOWN.values(),
        *(lambda _, field=field: [actions.take(Do.CHANGE_FIELD, field=field)] for field, _ in CHANGES.values()),
    ]
    params = {"path": "/", "secret": "s", "holders": [], "at": "a", "place": "p"}
    found = {one.params.get("field") for advice in said for one in advice(params)}
    found |= {one.get("field") for rule in rules.ours() for one in rule.actions}
    return {field for field in found if field} | {"hangSeconds", SELECT, str(loss_anomalies.ROLL_BACK.params["field"])}


@pytest.mark.parametrize("lang", messages.LANGUAGES)
def test_every_field_that_advice_names_has_a_label(lang: str) -> None:
    unnamed = {field for field in named_fields() if messages.text("FIELD_LABEL", lang, field=field)[0] == field}
    assert not unnamed


def test_an_action_takes_what_it_is_declared_to_take() -> None:
    assert actions.take(Do.EDIT_SCRIPT, at=None).params == {}
    with pytest.raises(ValueError, match="RAISE_LIMIT needs field"):
        actions.take(Do.RAISE_LIMIT)
    with pytest.raises(ValueError, match="WAIT does not take rank"):
        actions.take(Do.WAIT, rank=3)


@pytest.mark.parametrize(
    ("code", "unfit"), [("MASTER_PORT_TAKEN", False), ("WORKER_LOST", True), ("NODES_MISSING", True)]
)
def test_a_taken_port_says_nothing_against_its_machine(code: str, unfit: bool) -> None:
    cause = replace(plugins.causes("agent")[code], params={"port": 29500, "node": "gn5", "nodeRank": 0})
    found = {one.code for one in advice.actions(cause, ["gn5"], ended=True)}
    assert ({Do.CORDON, Do.WITHOUT_NODE, Do.USE_SPARE} <= found) is unfit

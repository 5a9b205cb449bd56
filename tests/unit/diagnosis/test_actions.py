"""What people may do about a finding is a closed list, and every part of it can be said."""

from dataclasses import replace

import pytest

from fermi import messages
from fermi.diagnosis import actions, advice, loss_anomalies, rules
from fermi.diagnosis.actions import ACTIONS, TEXT_PREFIX, ActionCode
from fermi.diagnosis.advice import ADVICE_BY_CODE, FIELDS_TO_CHANGE, SELECT_FIELD
from fermi.planning import plugins


@pytest.mark.parametrize("lang", messages.LANGUAGES)
@pytest.mark.parametrize("code", ActionCode)
def test_every_action_has_texts_with_and_without_parameters(code: ActionCode, lang: str) -> None:
    needs, may = ({name: f"<{name}>" for name in names} for names in (ACTIONS[code].needs, ACTIONS[code].may))
    for params in (needs, {**needs, **may}):
        label, hint = messages.render_text(f"{TEXT_PREFIX}{code}", lang, **actions.build_action(code, **params).params)
        assert not [name for name in params if name != "nodeRank" and params[name] not in label + hint]


def test_the_best_action_comes_first_and_a_plain_retry_last() -> None:
    anyway = actions.build_action(ActionCode.CHANGE_FIELD, field=actions.CRASH_LOOP_FIELD, to="restart")
    found = [
        anyway,
        *(actions.build_action(code, **dict.fromkeys(ACTIONS[code].needs, "x")) for code in reversed(ActionCode)),
    ]
    ordered = actions.sort_actions(found)
    assert len(ordered) == len(ActionCode) + 1, "each has its place"
    place = {one.code: at for at, one in enumerate(ordered[:-1])}
    assert ordered[-1] is anyway
    assert (
        place[ActionCode.EDIT_SCRIPT]
        < place[ActionCode.SEE_LOG]
        < place[ActionCode.RESTART_FROM_CHECKPOINT]
        < place[ActionCode.WITHOUT_NODE]
    )
    assert place[ActionCode.WAIT] < place[ActionCode.CORDON] < place[ActionCode.STOP]


def named_fields() -> set[str]:
    """The fields of a request that any advice names."""
    said = [
        *ADVICE_BY_CODE.values(),
        *(
            lambda _, field=field: [actions.build_action(ActionCode.CHANGE_FIELD, field=field)]
            for field, _ in FIELDS_TO_CHANGE.values()
        ),
    ]
    params = {"path": "/", "secret": "s", "holders": [], "at": "a", "place": "p"}
    found = {one.params.get("field") for advice in said for one in advice(params)}
    found |= {one.get("field") for rule in rules.load_rules() for one in rule.actions}
    return {field for field in found if field} | {
        "hangSeconds",
        SELECT_FIELD,
        str(loss_anomalies.ROLLBACK_ACTION.params["field"]),
    }


@pytest.mark.parametrize("lang", messages.LANGUAGES)
def test_every_field_named_by_advice_has_a_label(lang: str) -> None:
    unnamed = {field for field in named_fields() if messages.render_text("FIELD_LABEL", lang, field=field)[0] == field}
    assert not unnamed


def test_an_action_takes_its_declared_parameters() -> None:
    assert actions.build_action(ActionCode.EDIT_SCRIPT, at=None).params == {}
    with pytest.raises(ValueError, match="RAISE_LIMIT needs field"):
        actions.build_action(ActionCode.RAISE_LIMIT)
    with pytest.raises(ValueError, match="WAIT does not take rank"):
        actions.build_action(ActionCode.WAIT, rank=3)


@pytest.mark.parametrize(
    ("code", "unfit"), [("MASTER_PORT_TAKEN", False), ("WORKER_LOST", True), ("NODES_MISSING", True)]
)
def test_a_busy_port_does_not_blame_its_machine(code: str, unfit: bool) -> None:
    cause = replace(plugins.get_causes("agent")[code], params={"port": 29500, "node": "gn5", "nodeRank": 0})
    found = {one.code for one in advice.list_actions(cause, ["gn5"], ended=True)}
    assert ({ActionCode.CORDON, ActionCode.WITHOUT_NODE, ActionCode.USE_SPARE} <= found) is unfit

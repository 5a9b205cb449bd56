"""What people may do about a finding is a closed list, and every part of it can be said."""

from dataclasses import replace

import pytest

from fermi import messages
from fermi.launch import registry
from fermi.launch.diagnosis import actions, advice
from fermi.launch.diagnosis.actions import ACTIONS, LABEL, Do


@pytest.mark.parametrize("lang", messages.LANGUAGES)
@pytest.mark.parametrize("code", Do)
def test_every_action_says_what_it_does_with_and_without_what_it_may_name(code: Do, lang: str) -> None:
    needs, may = ({name: f"<{name}>" for name in names} for names in (ACTIONS[code].needs, ACTIONS[code].may))
    for params in (needs, {**needs, **may}):
        label, hint = messages.text(f"{LABEL}{code}", lang, **actions.take(code, **params).params)
        assert not [name for name in params if name != "nodeRank" and params[name] not in label + hint]


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
    cause = replace(registry.causes("agent")[code], params={"port": 29500, "node": "gn5", "nodeRank": 0})
    found = {one.code for one in advice.actions(cause, ["gn5"], ended=True)}
    assert ({Do.CORDON, Do.WITHOUT_NODE, Do.USE_SPARE} <= found) is unfit

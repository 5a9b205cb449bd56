"""What engines and the platform declare of causes, and how a cause is found by its code."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from apps.training.states.reasons import CAUSES, TaskReason
from fermi import messages
from fermi.jobs import causes as general
from fermi.jobs.causes import CODE_PREPARING_CODES, declare_causes
from fermi.jobs.spec import Cause, Observation, Phase
from fermi.planning import plugins

GIVE = ("Cause", "about_pod", "_about_job")
FORMER = {
    "SLURM_NODE_LOST": {"job": 7, "nodes": "n[1-2]", "why": "NODE_FAIL"},
    "SLURM_OUT_OF_MEMORY": {"job": 7, "nodes": "n1", "why": "OUT_OF_MEMORY"},
    "SLURM_HEAD_UNREACHABLE": {"job": 7, "node": "b", "evidence": "no route"},
    "SLURM_NODES_MISSING": {"job": 7, "node": "a", "evidence": "b"},
    "SLURM_QUEUE": {"job": 7, "why": "Priority"},
}
"""Rows that earlier releases wrote."""


def test_each_code_is_declared_in_one_place() -> None:
    own = [plugins.get_causes(engine).keys() - general.CAUSES.keys() for engine in plugins.BACKENDS]
    places = Counter(code for place in (CAUSES, general.CAUSES, *own) for code in place)
    assert not [code for code, count in places.items() if count > 1]
    assert CAUSES.keys() == set(TaskReason)


@pytest.mark.parametrize("engine", plugins.BACKENDS)
def test_causes_returned_by_an_engine_are_declared(engine: str, root: Path) -> None:
    """Nothing follows from a code that nobody declares: no restart, whatever was meant."""
    known = CAUSES.keys() | plugins.get_causes(engine).keys()
    engines = root / "platform" / "fermi" / "engines"
    nodes = (node for path in (engines / engine).glob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    given = [node.args[0] for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") in GIVE]
    codes = {str(one.value) for one in given if isinstance(one, ast.Constant)}
    assert codes
    assert codes <= known


def test_an_engine_adds_its_own_causes_to_those_of_any() -> None:
    assert plugins.get_causes("agent")["WORKER_LOST"].underlying
    assert plugins.get_causes("local") == general.CAUSES == plugins.get_causes("an engine that was removed")


@pytest.mark.parametrize("code", FORMER)
def test_a_row_of_an_earlier_release_is_shown_unchanged(code: str) -> None:
    for lang in messages.LANGUAGES:
        assert "7" in messages.render_text(code, lang, **FORMER[code])[0]
    assert code == "SLURM_QUEUE" or plugins.get_causes("slurm")[code].retry


@pytest.mark.parametrize("code", ["", "A" * 41])
def test_a_too_long_code_is_refused_at_its_declaration(code: str) -> None:
    with pytest.raises(ValueError, match="1 to 40 letters"):
        declare_causes(Cause(code))


def test_observations_are_stored_as_code_and_parameters() -> None:
    """What follows from a code may change with a release, and is declared."""
    seen = Observation(Phase.FAILED, cause=Cause("A", {"node": "n"}, retry=True), waiting=None).to_json()
    assert (seen["cause"], seen["waiting"]) == ({"code": "A", "params": {"node": "n"}}, None)


def test_no_engine_times_out_an_attempt_in_preparation() -> None:
    for engine in plugins.BACKENDS:
        assert all(plugins.get_causes(engine)[code].patient for code in CODE_PREPARING_CODES), engine

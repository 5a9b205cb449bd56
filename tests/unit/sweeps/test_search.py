"""Which parameters trials get."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from fermi.sweeps.search import (
    COMPLETE,
    FAILED,
    OPEN,
    PRUNED,
    Suggestion,
    TrialRecord,
    compute_importance,
    suggest_parameters,
)
from fermi.sweeps.spec import SweepSpec, parse_sweep

PARAMETERS = {
    "lr": {"min": 1e-5, "max": 1e-1, "scale": "log"},
    "layers": {"min": 2, "max": 8, "type": "int"},
    "width": {"min": 0.5, "max": 2.0, "step": 0.25},
    "heads": {"min": 1, "max": 64, "type": "int", "scale": "log"},
    "optimizer": {"values": ["adam", "sgd"]},
    "momentum": {"min": 0, "max": 1, "when": {"optimizer": "sgd"}},
    "seed": {"value": 7},
}
METHODS = ["tpe", "random", "cmaes"]


def make_spec(method: str, goal: str = "minimize") -> SweepSpec:
    body: dict[str, Any] = {
        "name": "x",
        "objective": {"metric": "val_loss", "goal": goal},
        "method": method,
        "parameters": PARAMETERS,
        "budget": {"trials": 200},
        "request": {"taskName": "t"},
    }
    spec, problems = parse_sweep(body)
    assert problems == []
    return spec


def rate(parameters: Mapping[str, Any]) -> float:
    found = dict(parameters)
    return (math.log10(found["lr"]) + 3) ** 2 + 0.1 * (found["layers"] - 5) ** 2 + float(found["optimizer"] == "adam")


def search_for(spec: SweepSpec, count: int, sign: float = 1.0) -> list[TrialRecord]:
    history: list[TrialRecord] = []
    for number in range(count):
        chosen = suggest_parameters(spec, history, number, "sweep-a")
        assert chosen
        value = sign * rate(chosen.parameters)
        history.append(TrialRecord(number, chosen.parameters, COMPLETE, value, ended=number, search=chosen.search))
    return history


@pytest.mark.parametrize("method", METHODS)
def test_parameters_stay_within_their_ranges_and_conditions(method: str) -> None:
    for one in search_for(make_spec(method), 40):
        found: dict[str, Any] = dict(one.parameters)
        assert 1e-5 <= found["lr"] <= 1e-1
        assert isinstance(found["layers"], int)
        assert found["layers"] in range(2, 9)
        assert found["width"] in [0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]
        assert found["heads"] in range(1, 65)
        assert found["seed"] == 7
        assert ("momentum" in found) == (found["optimizer"] == "sgd")


@pytest.mark.parametrize("method", METHODS)
def test_the_same_trials_give_the_same_parameters(method: str) -> None:
    spec, history = make_spec(method), search_for(make_spec(method), 15)
    history += [
        TrialRecord(15, history[0].parameters, OPEN),
        TrialRecord(16, history[1].parameters, FAILED),
        TrialRecord(17, history[2].parameters, PRUNED, 3.0, step=100),
    ]
    first = suggest_parameters(spec, history, 18, "sweep-a")
    assert first == suggest_parameters(spec, history, 18, "sweep-a")
    assert isinstance(first, Suggestion)
    assert first.parameters != suggest_parameters(spec, history, 18, "sweep-b").parameters  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["tpe", "cmaes"])
@pytest.mark.parametrize(("goal", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_a_method_that_learns_finds_better_trials_later(method: str, goal: str, sign: float) -> None:
    history = search_for(make_spec(method, goal), 60, sign)
    early, late = history[:20], history[-20:]
    assert sum(rate(one.parameters) for one in late) < sum(rate(one.parameters) for one in early)
    assert {one.search["by"] for one in late} == {method}


def test_a_generation_of_cmaes_is_told_in_the_order_in_which_its_trials_ended() -> None:
    spec, history = make_spec("cmaes"), search_for(make_spec("cmaes"), 12)
    generations = [one.search["generation"] for one in history]
    assert generations == sorted(generations)
    assert generations[-1] > 0
    shuffled = [history[5], *history[:5], *history[6:]]
    assert suggest_parameters(spec, shuffled, 12, "sweep-a") == suggest_parameters(spec, history, 12, "sweep-a")


def test_importance_names_the_parameter_that_matters_most() -> None:
    spec = make_spec("random")
    shares = compute_importance(spec, search_for(spec, 200))
    assert next(iter(shares)) == "lr"
    assert sum(shares.values()) == pytest.approx(1)
    assert shares.keys() == {"lr", "layers", "width", "heads", "optimizer"}
    assert compute_importance(spec, search_for(spec, 4)) == {}
    alike = [TrialRecord(n, one.parameters, COMPLETE, 1.0) for n, one in enumerate(search_for(spec, 5))]
    assert compute_importance(spec, alike) == {}


def test_a_grid_ends_after_its_last_combination() -> None:
    spec, _ = parse_sweep(
        {
            "name": "g",
            "objective": {"metric": "m"},
            "method": "grid",
            "parameters": {"a": {"values": [1, 2]}, "b": {"values": [True, "x"]}},
            "request": {"taskName": "t"},
        }
    )
    found = [suggest_parameters(spec, [], number, "s") for number in range(5)]
    assert [one.parameters if one else None for one in found] == [
        {"a": 1, "b": True},
        {"a": 1, "b": "x"},
        {"a": 2, "b": True},
        {"a": 2, "b": "x"},
        None,
    ]

"""What a sweep may be described by, and what is wrong with it: all at once."""

from typing import Any

import pytest

from fermi.sweeps.space import list_grid
from fermi.sweeps.spec import MAX_TRIALS, parse_sweep

SWEEP: dict[str, Any] = {
    "name": "rates",
    "objective": {"metric": "val_loss"},
    "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "scale": "log"}, "optimizer": {"values": ["adam", "sgd"]}},
    "budget": {"trials": 20},
    "request": {"taskName": "t"},
}


def find_problems(**changes: Any) -> dict[str, str]:
    return {problem.field: problem.code for problem in parse_sweep({**SWEEP, **changes})[1]}


def test_a_sweep_has_defaults_for_all_but_what_it_is_about() -> None:
    spec, problems = parse_sweep(SWEEP)
    assert problems == []
    assert (spec.method, spec.parallel, spec.pruning.method, spec.objective.statistic) == ("tpe", 4, "none", "min")
    assert parse_sweep({**SWEEP, "objective": {"metric": "acc", "goal": "maximize"}})[0].objective.statistic == "max"


def test_all_problems_are_reported_at_once() -> None:
    assert find_problems(
        name=" ",
        parallel=0,
        budget={"trials": 0},
        pruning={"minSteps": 10, "maxSteps": 5},
        parameters={
            "a": {"min": 3, "max": 1},
            "b": {"values": [1, 1, None]},
            "c": {"value": 1, "min": 2},
            "d": {"min": 0, "max": 1, "scale": "log", "step": 0.1},
            "e": {"min": 0.5, "max": 3, "type": "int"},
            "f": {"values": [1], "when": {"zz": 1, "b": 2}},
            "1g": {"value": 1},
            "h": {"min": 1},
        },
        surprise=1,
    ) == {
        "name": "SWEEP_VALUE_MISSING",
        "parallel": "FIELD_RANGE",
        "budget.trials": "FIELD_RANGE",
        "pruning.maxSteps": "SWEEP_STEPS_REVERSED",
        "parameters.a.max": "SWEEP_RANGE_EMPTY",
        "parameters.b.values.1": "SWEEP_VALUE_REPEATED",
        "parameters.b.values.2": "SWEEP_VALUE_INVALID",
        "parameters.c": "SWEEP_PARAMETER_KIND",
        "parameters.d.min": "SWEEP_LOG_POSITIVE",
        "parameters.d.step": "SWEEP_LOG_STEP",
        "parameters.e.min": "SWEEP_INT_WHOLE",
        "parameters.f.when.zz": "SWEEP_CONDITION_UNKNOWN",
        "parameters.1g": "SWEEP_NAME_INVALID",
        "parameters.h.max": "SWEEP_VALUE_MISSING",
        "surprise": "UNKNOWN_FIELD",
    }


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"parameters": {}}, "parameters", "SWEEP_PARAMETERS_REQUIRED"),
        ({"budget": {}}, "budget", "SWEEP_BUDGET_REQUIRED"),
        ({"method": "grid"}, "parameters.lr.step", "SWEEP_GRID_STEP"),
        ({"method": "cmaes"}, "method", "SWEEP_CMAES_RANGES"),
        ({"pruning": {"method": "asha"}}, "pruning.maxSteps", "SWEEP_STEPS_REQUIRED"),
        ({"budget": {"endsAt": "tomorrow"}}, "budget.endsAt", "SWEEP_TIME_INVALID"),
        (
            {"parameters": {"a": {"values": [1], "when": {"b": 1}}, "b": {"values": [1], "when": {"a": 1}}}},
            "parameters.a.when",
            "SWEEP_CONDITION_CIRCLE",
        ),
        (
            {"parameters": {"a": {"values": [1, 2]}, "b": {"values": [1], "when": {"a": 3}}}},
            "parameters.b.when.a",
            "SWEEP_CONDITION_VALUE",
        ),
        (
            {"method": "grid", "budget": {}, "parameters": {n: {"min": 1, "max": 99, "type": "int"} for n in "abc"}},
            "parameters",
            "SWEEP_GRID_LARGE",
        ),
    ],
)
def test_rules_beyond_a_single_value_are_checked(changes: dict[str, Any], field: str, code: str) -> None:
    assert find_problems(**changes) == {field: code}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"parameters": {"lr": {"min": "low", "max": 1}}}, "parameters.lr.min"),
        ({"parameters": {"lr": {"min": 0, "max": 1e308}}}, "parameters.lr.max"),
        ({"budget": {"trials": 0}}, "budget.trials"),
        ({"budget": {"gpuHours": -1}}, "budget.gpuHours"),
    ],
)
def test_what_could_not_be_read_is_not_reported_as_missing_too(changes: dict[str, Any], field: str) -> None:
    assert [problem.field for problem in parse_sweep({**SWEEP, **changes})[1]] == [field]


def test_a_grid_has_each_combination_once_and_respects_conditions() -> None:
    spec, problems = parse_sweep(
        {
            **SWEEP,
            "method": "grid",
            "budget": {},
            "parameters": {
                "momentum": {"min": 0.8, "max": 0.9, "step": 0.1, "when": {"optimizer": ["sgd"]}},
                "optimizer": {"values": ["adam", "sgd"]},
                "layers": {"min": 2, "max": 4, "step": 2, "type": "int"},
                "seed": {"value": 7},
            },
        }
    )
    assert problems == []
    assert list(list_grid(spec.space)) == [
        {"optimizer": "adam", "layers": 2, "seed": 7},
        {"optimizer": "adam", "layers": 4, "seed": 7},
        {"optimizer": "sgd", "layers": 2, "seed": 7, "momentum": 0.8},
        {"optimizer": "sgd", "layers": 2, "seed": 7, "momentum": 0.9},
        {"optimizer": "sgd", "layers": 4, "seed": 7, "momentum": 0.8},
        {"optimizer": "sgd", "layers": 4, "seed": 7, "momentum": 0.9},
    ]
    assert spec.max_trials == MAX_TRIALS


def test_a_time_without_an_offset_is_utc() -> None:
    spec, _ = parse_sweep({**SWEEP, "budget": {"endsAt": "2030-01-01T00:00:00"}})
    assert spec.ends_at == 1893456000


def test_a_whole_training_has_the_steps_of_the_request() -> None:
    request = {"taskName": "t", "hyperparameters": {"totalSteps": 900}}
    spec, problems = parse_sweep({**SWEEP, "pruning": {"method": "asha"}, "request": request})
    assert (spec.pruning.max_steps, problems) == (900, [])

"""Sweep files of other tools."""

from typing import Any

import pytest

from fermi.sweeps.documents import convert_document, merge_requests
from fermi.sweeps.spec import parse_sweep

WANDB: dict[str, Any] = {
    "program": "train.py",
    "name": "sweepdemo",
    "method": "bayes",
    "metric": {"goal": "minimize", "name": "validation_loss"},
    "parameters": {
        "learning_rate": {"min": 0.0001, "max": 0.1, "distribution": "log_uniform_values"},
        "batch_size": {"values": [16, 32, 64]},
        "epochs": {"value": 5},
        "layers": {"min": 1, "max": 4},
        "dropout": {"min": 0.0, "max": 0.5},
        "width": {"distribution": "q_uniform", "min": 8, "max": 64, "q": 8},
    },
    "early_terminate": {"type": "hyperband", "s": 2, "eta": 3, "max_iter": 27},
    "run_cap": 30,
}
KATIB: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1beta1",
    "kind": "Experiment",
    "metadata": {"namespace": "kubeflow", "name": "random"},
    "spec": {
        "objective": {"type": "maximize", "objectiveMetricName": "accuracy", "goal": 0.99},
        "algorithm": {"algorithmName": "cmaes"},
        "parallelTrialCount": 3,
        "maxTrialCount": 12,
        "parameters": [
            {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "0.05"}},
            {"name": "layers", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "5", "step": "2"}},
            {"name": "optimizer", "parameterType": "categorical", "feasibleSpace": {"list": ["sgd", "adam"]}},
            {"name": "size", "parameterType": "discrete", "feasibleSpace": {"list": ["16", "32"]}},
        ],
        "earlyStopping": {
            "algorithmName": "medianstop",
            "algorithmSettings": [{"name": "min_trials_required", "value": "2"}, {"name": "start_step", "value": "5"}],
        },
        "trialTemplate": {
            "trialParameters": [{"name": "learningRate", "reference": "lr"}],
            "trialSpec": {
                "kind": "Job",
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "c",
                                    "command": ["python3", "/opt/mnist.py"],
                                    "args": ["--lr=${trialParameters.learningRate}", "--epochs=1"],
                                }
                            ]
                        }
                    }
                },
            },
        },
    },
}


def test_a_sweep_file_of_wandb_is_a_sweep_here() -> None:
    body, problems = convert_document(WANDB)
    assert problems == []
    spec, problems = parse_sweep(body)
    assert problems == []
    assert (spec.method, spec.budget.trials, spec.objective.metric, spec.objective.statistic) == (
        "tpe", 30, "validation_loss", "last",
    )  # fmt: skip
    kinds = {one.name: (one.kind, one.low, one.high, one.step, one.log, one.values) for one in spec.space}
    assert kinds == {
        "learning_rate": ("float", 0.0001, 0.1, None, True, ()),
        "batch_size": ("choice", 0, 0, None, False, (16, 32, 64)),
        "epochs": ("fixed", 0, 0, None, False, (5,)),
        "layers": ("int", 1, 4, None, False, ()),
        "dropout": ("float", 0, 0.5, None, False, ()),
        "width": ("float", 8, 64, 8, False, ()),
    }
    assert (spec.pruning.method, spec.pruning.min_steps, spec.pruning.max_steps) == ("asha", 3, 27)
    assert spec.request["entrypoint"] == {"script": "train.py", "args": ["${sweep.args}"]}


def test_hyperband_from_its_first_iteration_and_exponents_are_converted() -> None:
    body, problems = convert_document(
        {
            **WANDB,
            "parameters": {"lr": {"distribution": "log_uniform", "min": -4.6, "max": -2.3}},
            "early_terminate": {"type": "hyperband", "min_iter": 5, "s": 2},
        }
    )
    assert problems == []
    assert body["pruning"] == {"method": "asha", "minSteps": 5, "maxSteps": 45, "reduction": 3}
    assert body["parameters"]["lr"]["min"] == pytest.approx(0.01, rel=0.01)
    assert parse_sweep(body)[1] == []


def test_the_words_of_a_wandb_command_are_ours() -> None:
    def convert(*words: str) -> Any:
        body, problems = convert_document({**WANDB, "command": list(words)})
        return body["request"]["entrypoint"], [problem.params["found"] for problem in problems]

    plain = ("${env}", "${interpreter}", "${program}", "${args}")
    assert convert(*plain) == ({"script": "train.py", "args": ["${sweep.args}"]}, [])
    assert convert("${env}", "torchrun", "--nproc_per_node=2", "${program}", "${args_no_hyphens}") == (
        {"command": ["torchrun", "--nproc_per_node=2", "train.py", "${sweep.pairs}"]}, [],
    )  # fmt: skip
    assert convert("python3", "run.py", "${args_no_boolean_flags}", "--fast")[0] == {
        "script": "run.py", "args": ["${sweep.flags}", "--fast"],
    }  # fmt: skip
    assert convert("${program}", "${args_json_file}")[1] == ["${args_json_file}"]


def test_an_experiment_of_katib_is_a_sweep_here() -> None:
    body, problems = convert_document(KATIB)
    assert problems == []
    spec, problems = parse_sweep(body)
    assert problems == []
    assert (spec.name, spec.method, spec.parallel, spec.max_trials, spec.objective.statistic) == (
        "random", "cmaes", 3, 12, "max",
    )  # fmt: skip
    kinds = {one.name: (one.kind, one.low, one.high, one.step, one.values) for one in spec.space}
    assert kinds == {
        "lr": ("float", 0.01, 0.05, None, ()),
        "layers": ("int", 1, 5, 2, ()),
        "optimizer": ("choice", 0, 0, None, ("sgd", "adam")),
        "size": ("choice", 0, 0, None, (16, 32)),
    }
    assert (spec.pruning.method, spec.pruning.start_trials, spec.pruning.min_steps) == ("median", 2, 5)
    assert spec.objective.target == 0.99
    assert spec.request["entrypoint"]["command"] == ["python3", "/opt/mnist.py", "--lr={lr}", "--epochs=1"]


def test_what_has_no_equal_here_is_reported_all_at_once() -> None:
    wandb = {
        **WANDB,
        "method": "custom",
        "surprise": 1,
        "parameters": {
            "a": {"distribution": "normal", "mu": 0, "sigma": 1},
            "b": {"values": [1, 2], "probabilities": [0.1, 0.9]},
            "c": {"parameters": {"d": {"value": 1}}},
        },
        "early_terminate": {"type": "envelope"},
    }
    parts = {problem.params["part"] for problem in convert_document(wandb)[1]}
    assert parts == {
        "surprise", "method", "parameters.a.distribution", "parameters.b.probabilities", "parameters.c.parameters",
        "early_terminate.type",
    }  # fmt: skip
    katib = {
        "kind": "Experiment",
        "spec": {
            "algorithm": {"algorithmName": "enas"},
            "parameters": [{"name": "x", "parameterType": "unknown"}],
            "earlyStopping": {"algorithmName": "other"},
        },
    }
    assert {problem.params["part"] for problem in convert_document(katib)[1]} == {
        "spec.algorithm.algorithmName", "spec.parameters.0.parameterType",
        "spec.earlyStopping.algorithmName",
    }  # fmt: skip


def test_a_file_of_our_own_is_the_body_and_a_malformed_one_raises_nothing() -> None:
    own = {"name": "x", "objective": {"metric": "m"}, "method": "tpe"}
    assert convert_document(own) == (own, [])
    for broken in (
        {"method": None, "metric": 5, "parameters": 3, "command": 7},
        {"method": "grid", "program": 5, "parameters": {1: 2}, "early_terminate": {"type": "hyperband"}},
        {
            **WANDB,
            "early_terminate": {"type": "hyperband", "min_iter": "inf", "eta": "nan", "s": 1e999},
            "parameters": {},
        },
        {
            "kind": "Experiment",
            "spec": {
                "earlyStopping": {
                    "algorithmName": "medianstop",
                    "algorithmSettings": [{"name": "start_step", "value": "inf"}],
                }
            },
        },
        {"kind": "Experiment", "spec": {"parameters": [1, None], "trialTemplate": {"trialSpec": {"containers": [1]}}}},
    ):
        assert parse_sweep(convert_document(broken)[0])[1]


def test_a_request_of_its_own_comes_before_what_the_sweeps_file_says() -> None:
    found = {"taskName": "a", "entrypoint": {"script": "train.py", "args": ["--lr={lr}"]}}
    assert merge_requests(found, {"taskName": "b", "environmentIds": ["env-001"]}) == {
        **found, "taskName": "b", "environmentIds": ["env-001"],
    }  # fmt: skip
    assert merge_requests(found, {"entrypoint": {"command": ["torchrun", "x.py"]}})["entrypoint"] == {
        "command": ["torchrun", "x.py"]
    }
    resume = {"args": ["--resume", "{path}"]}
    assert merge_requests(found, {"entrypoint": {"resume": resume}})["entrypoint"] == {
        **found["entrypoint"], "resume": resume,
    }  # fmt: skip
    assert merge_requests(None, {"taskName": "b"}) == {"taskName": "b"}


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        ({"script": "a.py", "args": ["--epochs", "2"]}, {"script": "a.py", "args": ["--epochs", "2", "${sweep.args}"]}),
        ({"command": ["sh", "a.sh"]}, {"command": ["sh", "a.sh", "${sweep.args}"]}),
        (
            {"script": "a.py", "args": ["--rate", "{learning_rate}"]},
            {"script": "a.py", "args": ["--rate", "{learning_rate}"]},
        ),
        ({"script": "a.py", "args": ["{other}"]}, {"script": "a.py", "args": ["{other}", "${sweep.args}"]}),
    ],
)
def test_a_program_of_its_own_gets_the_parameters_as_the_sweeps_file_passes_them(
    given: dict[str, Any], merged: dict[str, Any]
) -> None:
    found = convert_document(WANDB)[0]
    assert merge_requests(found["request"], {"entrypoint": given}, found["parameters"])["entrypoint"] == merged


@pytest.mark.parametrize("odd", ["inf", "nan", 0, -3, 0.5, 1e308, "1e999", [], {}, "x", True])
def test_odd_numbers_of_a_file_are_left_to_the_checks_of_a_sweep(odd: Any) -> None:
    for name in ("eta", "s", "min_iter", "max_iter"):
        stop = {"type": "hyperband", "max_iter": 27, name: odd}
        parse_sweep(convert_document({**WANDB, "early_terminate": stop})[0])
    stopping = {
        "algorithmName": "medianstop",
        "algorithmSettings": [{"name": "start_step", "value": odd}, {"name": odd, "value": "1"}],
    }
    template = {"trialParameters": [{"name": odd, "reference": odd}]}
    spec = {**KATIB["spec"], "earlyStopping": stopping, "trialTemplate": template, "parallelTrialCount": odd}
    parse_sweep(convert_document({**KATIB, "spec": spec})[0])

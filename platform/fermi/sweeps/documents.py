"""Sweeps as other tools describe them, as a body for POST /sweeps: the sweep file of Weights & Biases ("Define a sweep
configuration" of its documentation) and the Experiment of Katib (kubeflow.org/v1beta1). What has no equal here is
reported, never left out."""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from fermi.jobs.spec import Problem
from fermi.sweeps.spec import MAX_STEPS
from fermi.sweeps.trial_request import (
    ARGUMENTS_WORD,
    FLAGS_WORD,
    PAIRS_WORD,
    PARAMETER_WORDS,
    lacks_parameters,
    list_words,
)

DEFAULT_NAME = "sweep"
DEFAULT_BRACKETS, MAX_BRACKETS = 4, 20
MAX_REDUCTION = 100
MAX_EXPONENT = 600
_WANDB_KEYS = {
    "method", "metric", "parameters", "program", "command", "early_terminate", "run_cap", "name", "description",
    "project", "entity",
}  # fmt: skip
_WANDB_METHODS = {"grid": "grid", "random": "random", "bayes": "tpe"}
_WANDB_WORDS = {
    "${args}": ARGUMENTS_WORD, "${args_no_boolean_flags}": FLAGS_WORD, "${args_no_hyphens}": PAIRS_WORD,
    "${interpreter}": "python",
}  # fmt: skip
_KATIB_METHODS = {
    "random": "random", "grid": "grid", "tpe": "tpe", "multivariate-tpe": "tpe", "bayesianoptimization": "tpe",
    "cmaes": "cmaes",
}  # fmt: skip
_PROGRAMS = {"script", "module", "command"}
"""Parts of an entry point, of which one says what is run."""
_KATIB_PARAMETER = re.compile(r"\$\{trialParameters\.([^}]+)\}")


def convert_document(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the body that a file describes, and what of it has no equal here. A file of our own is the body already.
    The task's request may be incomplete: a file of another tool does not know the platform's environments."""
    if document.get("kind") == "Experiment" and isinstance(document.get("spec"), Mapping):
        return _convert_experiment(document)
    if "method" in document and ("program" in document or "metric" in document) and "objective" not in document:
        return _convert_wandb(document)
    return dict(document), []


def merge_requests(found: Any, given: Mapping[str, Any], names: Collection[str] = ()) -> dict[str, Any]:
    """Return the request of a sweep's file (`found`) with what a file of its own gives (`given`), which comes first. An
    entry point that names no program, but says how it resumes for example, adds to the one of the sweep's file. A
    program that gets none of the parameters (`names`) by its arguments gets them as the sweep's file passes them."""
    own = _as_mapping(found)
    merged = {**own, **given}
    ours, theirs = given.get("entrypoint"), own.get("entrypoint")
    if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
        return merged
    if not _PROGRAMS & ours.keys():
        merged["entrypoint"] = {**theirs, **ours}
    elif (passed := [word for word in list_words(theirs) if word in PARAMETER_WORDS]) and lacks_parameters(
        given, names
    ):
        part = "command" if "command" in ours else "args"
        merged["entrypoint"] = {**ours, part: [*_as_list(ours.get(part)), *passed]}
    return merged


def _convert_wandb(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    problems = [_refuse(str(name), value) for name, value in document.items() if name not in _WANDB_KEYS]
    metric = _as_mapping(document.get("metric"))
    target = {"target": metric["target"]} if metric.get("target") is not None else {}
    method = _WANDB_METHODS.get(str(document.get("method")))
    if method is None:
        problems.append(_refuse("method", document.get("method")))
    parameters: dict[str, Any] = {}
    for name, found in _as_mapping(document.get("parameters")).items():
        converted, wrong = _convert_wandb_parameter(f"parameters.{name}", _as_mapping(found))
        parameters[str(name)] = converted
        problems += wrong
    body: dict[str, Any] = {
        "name": document.get("name") or document.get("project") or DEFAULT_NAME,
        "objective": {
            "metric": metric.get("name") or "",
            "goal": metric.get("goal") or "minimize",
            "value": "last",  # what its summary of a run has, unless the script defines otherwise
            **target,
        },
        "method": method or "random",
        "parameters": parameters,
    }
    if document.get("run_cap") is not None:
        body["budget"] = {"trials": document["run_cap"]}
    pruning, wrong = _convert_hyperband(document.get("early_terminate"))
    if pruning:
        body["pruning"] = pruning
    entrypoint, more = _convert_wandb_command(document)
    if entrypoint:
        body["request"] = {"entrypoint": entrypoint}
    return body, [*problems, *wrong, *more]


def _convert_wandb_parameter(at: str, found: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    if "parameters" in found:
        return {}, [_refuse(f"{at}.parameters", "…")]
    if "value" in found:
        return {"value": found["value"]}, []
    if "values" in found:
        problems = [_refuse(f"{at}.probabilities", found["probabilities"])] if "probabilities" in found else []
        return {"values": found["values"]}, problems
    low, high = found.get("min"), found.get("max")
    whole = isinstance(low, int) and isinstance(high, int)
    kind = found.get("distribution") or ("int_uniform" if whole else "uniform")
    converted = {"min": low, "max": high}
    match kind:
        case "int_uniform":
            return {**converted, "type": "int"}, []
        case "uniform":
            return converted, []
        case "q_uniform":
            return {**converted, "step": found.get("q", 1)}, []
        case "log_uniform_values":
            return {**converted, "scale": "log"}, []
        case "log_uniform":  # its bounds are exponents of e
            low, high = _to_number(low), _to_number(high)
            if low is not None and high is not None and max(abs(low), abs(high)) < MAX_EXPONENT:
                return {"min": math.exp(low), "max": math.exp(high), "scale": "log"}, []
    return {}, [_refuse(f"{at}.distribution", kind)]


def _convert_hyperband(found: Any) -> tuple[dict[str, Any] | None, list[Problem]]:
    """Return ASHA for the early stopping of W&B, whose brackets are those of Hyperband with one bracket."""
    if not found:
        return None, []
    rule = _as_mapping(found)
    if rule.get("type") != "hyperband":
        return None, [_refuse("early_terminate.type", rule.get("type"))]
    reduction = _to_whole(rule.get("eta"), 3, low=2, high=MAX_REDUCTION)
    brackets = _to_whole(rule.get("s"), DEFAULT_BRACKETS, low=1, high=MAX_BRACKETS)
    low, high = rule.get("min_iter"), _to_number(rule.get("max_iter"))
    if low is not None:
        low = _to_whole(low, 1)
        last = min(low * reduction**brackets, MAX_STEPS) if high is None else high
        return {"method": "asha", "minSteps": low, "maxSteps": last, "reduction": reduction}, []
    if high is None:
        return None, [_refuse("early_terminate", "min_iter, max_iter")]
    low = max(1, int(high / reduction**brackets))
    return {"method": "asha", "minSteps": low, "maxSteps": int(high), "reduction": reduction}, []


def _convert_wandb_command(document: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[Problem]]:
    program, command = document.get("program"), document.get("command")
    if command is None:
        return ({"script": program, "args": [ARGUMENTS_WORD]} if program else None), []
    words, problems = [], []
    for word in command if isinstance(command, list) else [command]:
        if word == "${env}":
            continue
        found = str(program or "") if word == "${program}" else _WANDB_WORDS.get(str(word), str(word))
        if found.startswith("${") and found not in PARAMETER_WORDS:
            problems.append(_refuse("command", word))
        words.append(found)
    if len(words) > 1 and words[0].startswith("python") and words[1].endswith(".py"):
        return {"script": words[1], "args": words[2:]}, problems
    return {"command": words}, problems


def _convert_experiment(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    spec, problems = _as_mapping(document["spec"]), []
    objective, algorithm = _as_mapping(spec.get("objective")), _as_mapping(spec.get("algorithm"))
    method = _KATIB_METHODS.get(str(algorithm.get("algorithmName")))
    pruning: dict[str, Any] | None = None
    if method is None:
        problems.append(_refuse("spec.algorithm.algorithmName", algorithm.get("algorithmName")))
    parameters: dict[str, Any] = {}
    for index, one in enumerate(_as_list(spec.get("parameters"))):
        found = _as_mapping(one)
        converted, wrong = _convert_katib_parameter(f"spec.parameters.{index}", found)
        parameters[str(found.get("name"))] = converted
        problems += wrong
    if stopping := _as_mapping(spec.get("earlyStopping")):
        pruning, wrong = _convert_median(stopping)
        problems += wrong
    body: dict[str, Any] = {
        "name": _as_mapping(document.get("metadata")).get("name") or DEFAULT_NAME,
        "objective": {
            "metric": objective.get("objectiveMetricName") or "",
            "goal": objective.get("type") or "minimize",
            "value": "best",
            **({"target": objective["goal"]} if objective.get("goal") is not None else {}),
        },
        "method": method or "random",
        "parameters": parameters,
        "parallel": spec.get("parallelTrialCount") or 3,  # Katib's default
    }
    if spec.get("maxTrialCount") is not None:
        body["budget"] = {"trials": spec["maxTrialCount"]}
    if pruning:
        body["pruning"] = pruning
    if words := _find_katib_command(_as_mapping(spec.get("trialTemplate"))):
        body["request"] = {"entrypoint": {"command": words}}
    return body, problems


def _convert_katib_parameter(at: str, found: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    space, kind = _as_mapping(found.get("feasibleSpace")), found.get("parameterType")
    if kind == "categorical":
        return {"values": _as_list(space.get("list"))}, []
    if kind == "discrete":
        return {"values": [_to_number(one) for one in _as_list(space.get("list"))]}, []
    if kind not in ("double", "int"):
        return {}, [_refuse(f"{at}.parameterType", kind)]
    converted: dict[str, Any] = {"min": _to_number(space.get("min")), "max": _to_number(space.get("max"))}
    if space.get("step") is not None:
        converted["step"] = _to_number(space["step"])
    if kind == "int":
        converted["type"] = "int"
    distribution = space.get("distribution") or "uniform"
    if distribution == "logUniform":
        converted["scale"] = "log"
    elif distribution != "uniform":
        return converted, [_refuse(f"{at}.feasibleSpace.distribution", distribution)]
    return converted, []


def _convert_median(stopping: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[Problem]]:
    if stopping.get("algorithmName") != "medianstop":
        return None, [_refuse("spec.earlyStopping.algorithmName", stopping.get("algorithmName"))]
    settings = {
        str(_as_mapping(one).get("name")): _as_mapping(one).get("value")
        for one in _as_list(stopping.get("algorithmSettings"))
    }
    return {
        "method": "median",
        "startTrials": _to_whole(settings.get("min_trials_required"), 3),  # Katib's defaults
        "minSteps": _to_whole(settings.get("start_step"), 4),
        "interval": 1,
    }, []


def _find_katib_command(template: Mapping[str, Any]) -> list[str]:
    """Return the command of the trial's first container, with its parameters in braces."""
    references = {
        str(one.get("name")): one.get("reference")
        for one in map(_as_mapping, _as_list(template.get("trialParameters")))
    }
    container = _find_container(template.get("trialSpec"))
    words = [*_as_list(container.get("command")), *_as_list(container.get("args"))]
    return [_KATIB_PARAMETER.sub(lambda at: f"{{{references.get(at[1]) or at[1]}}}", str(word)) for word in words]


def _find_container(found: Any, depth: int = 0) -> Mapping[str, Any]:
    """Return the first container in a manifest."""
    if not isinstance(found, Mapping) or depth > 10:
        return {}
    if containers := _as_list(found.get("containers")):
        return _as_mapping(containers[0])
    return next((one for inner in found.values() if (one := _find_container(inner, depth + 1))), {})


def _refuse(part: str, found: Any) -> Problem:
    return Problem("", "SWEEP_PART_UNSUPPORTED", {"part": part, "found": str(found)[:100]})


def _to_number(value: Any) -> float | int | None:
    """Return a finite number that may be written as a text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if isinstance(value, int) or math.isfinite(value) else None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and re.fullmatch(r"[-+]?\d+", str(value).strip()) else number


def _to_whole(value: Any, default: int, low: int = 1, high: int = MAX_STEPS) -> int:
    """Return a whole number within bounds."""
    number = _to_number(value)
    return default if not number else int(min(max(number, low), high))


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []

"""The request of a trial's task: that of the sweep, with the trial's parameters in all the places where a script may
read them.

    hyperparameters         of the platform's trainers; of an own script they are FERMI_HYPERPARAMETERS, as JSON
    {name} in an argument   the parameter's value; an argument whose parameter the trial does not have is left out
    ${sweep.args}           an argument of its own: `--lr=0.001 --layers=4`
    FERMI_PARAM_LR          a variable for each parameter
"""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fermi.sweeps.space import Value

ARGUMENTS_WORD = "${sweep.args}"
FLAGS_WORD = "${sweep.flags}"
"""As ARGUMENTS_WORD, with true as a flag alone, and false left out."""
PAIRS_WORD = "${sweep.pairs}"
"""`lr=0.001 layers=4`, as Hydra reads them."""
PARAMETER_WORDS = (ARGUMENTS_WORD, FLAGS_WORD, PAIRS_WORD)
VARIABLE_PREFIX = "FERMI_PARAM_"
SWEEP_VARIABLE, TRIAL_VARIABLE = "FERMI_SWEEP_ID", "FERMI_TRIAL"
MAX_NAME_LENGTH = 100
DEFAULTS: Mapping[str, Any] = {"priority": "low", "preemptible": True}
"""Of trials: they use what no other task needs. A request that says otherwise is left as it is."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.\-]{0,99})\}")


def build_trial_request(
    request: Mapping[str, Any], names: Sequence[str], sweep: str, title: str, number: int, chosen: Mapping[str, Value]
) -> dict[str, Any]:
    """Return the request of trial `number`. `names`: all parameters of the sweep; `chosen`: those of the trial."""
    found = {**DEFAULTS, **request}
    suffix = f" #{number}"
    own = request.get("taskName")
    stem = own if isinstance(own, str) and own.strip() else title
    found["taskName"] = f"{stem[: MAX_NAME_LENGTH - len(suffix)]}{suffix}"
    found["hyperparameters"] = {**_as_mapping(request.get("hyperparameters")), **chosen}
    variables = {make_variable(name): format_value(value) for name, value in chosen.items()}
    found["env"] = {
        **_as_mapping(request.get("env")),
        **variables,
        SWEEP_VARIABLE: sweep,
        TRIAL_VARIABLE: str(number),
    }
    entrypoint = request.get("entrypoint")
    if isinstance(entrypoint, Mapping):
        filled = {
            part: fill_words(entrypoint[part], names, chosen)
            for part in ("args", "command")
            if isinstance(entrypoint.get(part), list | tuple)
        }
        found["entrypoint"] = {**entrypoint, **filled}
    return found


def lacks_parameters(request: Mapping[str, Any], names: Collection[str]) -> bool:
    """Return True if an own script gets no parameter by its arguments."""
    entrypoint = request.get("entrypoint")
    if not entrypoint or not isinstance(entrypoint, Mapping):
        return False
    known = set(names)
    return not any(
        word in PARAMETER_WORDS or known & set(_PLACEHOLDER.findall(word)) for word in list_words(entrypoint)
    )


def list_words(entrypoint: Mapping[str, Any]) -> list[str]:
    """Return the words of an entry point's command, or its arguments."""
    return [*_as_words(entrypoint.get("command")), *_as_words(entrypoint.get("args"))]


def fill_words(words: Sequence[Any], names: Sequence[str], chosen: Mapping[str, Value]) -> list[Any]:
    """Return the words of a command with the parameters filled in. Braces with another name are left as they are."""
    known, filled = set(names), []
    for word in words:
        if not isinstance(word, str):
            filled.append(word)
        elif word == ARGUMENTS_WORD:
            filled += [f"--{name}={format_value(value)}" for name, value in chosen.items()]
        elif word == FLAGS_WORD:
            filled += [
                f"--{name}" if value is True else f"--{name}={format_value(value)}"
                for name, value in chosen.items()
                if value is not False
            ]
        elif word == PAIRS_WORD:
            filled += [f"{name}={format_value(value)}" for name, value in chosen.items()]
        elif not any(name in known and name not in chosen for name in _PLACEHOLDER.findall(word)):
            filled.append(_PLACEHOLDER.sub(lambda at: format_value(chosen[at[1]]) if at[1] in chosen else at[0], word))
    return filled


def format_command(request: Mapping[str, Any]) -> str:
    """Return what an own script of a trial's request is started with, as in a shell; empty without a script."""
    entrypoint = _as_mapping(request.get("entrypoint"))
    words = list_words(entrypoint)
    if script := entrypoint.get("script"):
        words = [str(script), *words]
    elif module := entrypoint.get("module"):
        words = ["-m", str(module), *words]
    return shlex.join(words) if entrypoint else ""


def make_variable(name: str) -> str:
    """Return the variable that has the parameter: FERMI_PARAM_LR of `lr`."""
    return VARIABLE_PREFIX + re.sub(r"[^A-Z0-9]+", "_", name.upper())


def format_value(value: Value) -> str:
    """Return the value as a script's argument: numbers as Python writes them, true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list | tuple) else []


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

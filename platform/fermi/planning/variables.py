"""Checks the environment variables that a user gives a job. What the platform sets for each rank is refused instead of
silently overridden (after kubeflow/trainer's practice)."""

import re
from collections.abc import Iterator, Mapping

from fermi.jobs.spec import NO_SECRETS, Problem
from fermi.planning import plugins

RESERVED_PATTERNS = (
    "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_.*",
    "MASTER_ADDR|MASTER_PORT|FERMI_(?!PARAM_|SWEEP_ID$|TRIAL$).*",  # these tell a script of the trial that it is
    "PET_.*|TORCHELASTIC_.*",  # torchrun's
)
"""Variables of every framework. Each framework's own ones are reserved for all, too, because a job may try another
framework later."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def find_problems(env: Mapping[str, str], secret_env: Mapping[str, str] = NO_SECRETS) -> list[Problem]:
    twice = [Problem(f"secretEnv.{name}", "ENV_TWICE", {"name": name}) for name in secret_env if name in env]
    return [*check_names(env, "env"), *check_names(secret_env, "secretEnv"), *twice]


def check_names(env: Mapping[str, str], where: str) -> list[Problem]:
    """Return what is wrong with the names of variables in the field `where`."""
    return list(_iterate_name_problems(env, where))


def _iterate_name_problems(env: Mapping[str, str], where: str) -> Iterator[Problem]:
    for name in env:
        if not _NAME.fullmatch(name):
            near = re.sub(r"^(?=\d|$)|[^A-Za-z0-9_]", "_", name)
            yield Problem(f"{where}.{name}", "ENV_NAME_INVALID", {"name": name, "nearest": near})
        elif is_reserved(name):
            yield Problem(f"{where}.{name}", "ENV_RESERVED", {"name": name, "nearest": f"MY_{name}"})


def is_reserved(name: str) -> bool:
    patterns = [*RESERVED_PATTERNS, *(pattern for each in plugins.list_frameworks() for pattern in each.info.reserved)]
    return any(re.fullmatch(pattern, name) for pattern in patterns)

"""A request for a task, from a file and from flags. Flags win; names become ids."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from fermi.cli.names import Names
from fermi.cli.texts import _

NONE = "none"
Kind = TypeVar("Kind", dict[str, Any], list[str])


@dataclass(frozen=True)
class Flags:
    """What was given on the command line; None or empty = not given."""

    name: str | None = None
    environments: tuple[str, ...] = ()
    spares: tuple[str, ...] = ()
    master: str | None = None
    framework: str | None = None
    backend: str | None = None
    master_port: int | None = None
    strategy: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    dataset: str | None = None
    model: str | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    max_restarts: int | None = None
    priority: int | None = None
    preflight: str | None = None
    resume_from: str | None = None
    script: str | None = None
    args: tuple[str, ...] = ()

    @property
    def distributed(self) -> dict[str, Any]:
        """What only `distributedConfig` can say."""
        given = {
            "masterNode": self.master,
            "framework": self.framework,
            "backend": self.backend,
            "masterPort": self.master_port,
            "strategy": self.strategy or None,
            "options": self.options or None,
        }
        return _given(given)


def build(file: Mapping[str, Any], flags: Flags, names: Names) -> dict[str, Any]:
    """The body of POST /training-tasks. What is wrong with it is the platform's to say, all at once."""
    request = {"launchMode": "existing", **file}
    plain = {
        "taskName": flags.name,
        "maxRestarts": flags.max_restarts,
        "priority": flags.priority,
        "preflight": flags.preflight,
        "resumeFrom": flags.resume_from,
    }
    request |= _given(plain)
    tables = {"hyperparameters": flags.hyperparameters, "env": flags.env, "secretEnv": flags.secret_env}
    for key, more in tables.items():
        if more:
            request[key] = {**_part(request, key, dict), **more}
    if flags.script:
        request["entrypoint"] = {"script": flags.script, "args": [*flags.args]}
    elif flags.args:
        raise click.UsageError(_("ARGUMENTS_NEED_SCRIPT"))
    _environments(request, flags, names)
    if spares := list(flags.spares) or _part(request, "spareEnvironmentIds", list):
        request["spareEnvironmentIds"] = names.environments(spares)
    _data(request, flags, names)
    return request


def _environments(request: dict[str, Any], flags: Flags, names: Names) -> None:
    """One environment needs no `distributedConfig`; several do, and so does what only it can say."""
    config = _part(request, "distributedConfig", dict)
    nodes = list(flags.environments) or _part(config, "nodeIds", list) or _part(request, "environmentIds", list)
    if not (len(nodes) > 1 or flags.distributed or (config and config.get("enabled", True))):
        if nodes:
            request["environmentIds"] = names.environments(nodes)
        return
    merged = {**config, **flags.distributed, "enabled": True, "nodeIds": names.environments(nodes)}
    for key in {"strategy", "options"} & flags.distributed.keys():
        merged[key] = {**_part(config, key, dict), **flags.distributed[key]}
    if merged.get("masterNode"):
        [merged["masterNode"]] = names.environments([merged["masterNode"]])
    elif nodes:
        merged["masterNode"] = merged["nodeIds"][0]
        if len(nodes) > 1:
            names.say(_("MASTER_CHOSEN", id=merged["masterNode"]))
    request["distributedConfig"] = merged
    request.pop("environmentIds", None)


def _data(request: dict[str, Any], flags: Flags, names: Names) -> None:
    """A null in a file, or NONE, stays one: its script reads neither dataset nor model."""
    if flags.dataset == NONE:
        request["datasetId"] = request["datasetVersionId"] = None
    elif flags.dataset is not None:
        dataset, _colon, version = flags.dataset.partition(":")
        request["datasetId"], request["datasetVersionId"] = dataset, version
    if request.get("datasetId", "") is not None:
        dataset_id, version_id = names.dataset(request.get("datasetId"), request.get("datasetVersionId"))
        request["datasetId"], request["datasetVersionId"] = dataset_id, version_id
    if flags.model == NONE:
        request["modelId"] = None
    elif flags.model or request.get("modelId", "") is not None:
        request["modelId"] = names.model(flags.model or request.get("modelId"))


def _part(whole: Mapping[str, Any], key: str, kind: type[Kind]) -> Kind:
    """What a file has under `key`; empty without it."""
    found = whole.get(key) or kind()
    if not isinstance(found, kind):
        raise click.UsageError(_("KEY_OF_WRONG_KIND", key=key, kind=_("A_LIST") if kind is list else _("A_TABLE")))
    return found


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}

"""Builds a task request from a file and from flags. Flags win; names become ids."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import click

from fermi import messages
from fermi.cli import fields
from fermi.cli.fields import DISTRIBUTED_CONFIG, read_section
from fermi.cli.name_resolution import NameResolver
from fermi.cli.output import print_message
from fermi.cli.texts import _, get_language
from fermi.planning.entry import MAX_SCRIPT_BYTES
from fermi.planning.launch_commands import recognize_words
from fermi.planning.request import EXISTING, NEW
from fermi.planning.shell_text import ShellTextError

NO_VALUE = "none"

RENDER_ONLY_KEYS = ("nodes", "trainData", "validData", "checkpointDir", "recipe", "connection")
"""Keys of a file for `fermi render`, which stand for what a platform would know."""


@dataclass(frozen=True)
class RequestFlags:
    """Flags of the command line; None or empty = not given. `fields`: those that `fields.add_field_options` adds, by
    name."""

    environments: tuple[str, ...] = ()
    spares: tuple[str, ...] = ()
    master: str | None = None
    dataset: str | None = None
    model: str | None = None
    script: str | None = None
    module: str | None = None
    command: bool = False
    processes: str | None = None
    resume_with: str | None = None
    args: tuple[str, ...] = ()
    project: str | None = None
    after: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


def build_request(file: Mapping[str, Any], flags: RequestFlags, names: NameResolver) -> dict[str, Any]:
    """Return the body of POST /training-tasks. Its problems are left to the platform, which reports all at once."""
    request = {**file}
    if strange := [key for key in RENDER_ONLY_KEYS if request.pop(key, None) is not None]:
        print_message(_("LEFT_OUT_BY_HAND", keys=", ".join(strange)))
    fields.apply_flags(request, flags.fields)
    request = {"launchMode": NEW if request.get("newEnvironments") else EXISTING, **request}
    set_entrypoint(request, flags)
    _set_resume_rule(request, flags)
    enabled = read_section(request, DISTRIBUTED_CONFIG, dict)
    _set_environments(request, flags, names, distributed=bool(enabled and enabled.get("enabled", True)))
    if spares := list(flags.spares) or read_section(request, "spareEnvironmentIds", list):
        request["spareEnvironmentIds"] = names.environments(spares)
    if project := flags.project or request.get("projectId"):
        request["projectId"] = names.project(project)
    if flags.after:
        request["after"] = [parse_predecessor(text) for text in flags.after]
    _set_data(request, flags, names)
    return request


def parse_predecessor(text: str) -> dict[str, Any]:
    """Return an entry of `after` from TASK, TASK:ON or TASK:ON:CHECKPOINT; the platform checks the words."""
    names = ("task", "on", "checkpoint")
    return {name: word for name, word in zip(names, text.split(":", 2), strict=False) if word}


def _set_resume_rule(request: dict[str, Any], flags: RequestFlags) -> None:
    """Set how the script is told to resume. Raise click.UsageError."""
    if not flags.resume_with:
        return
    try:
        words = shlex.split(flags.resume_with)
    except ValueError as error:
        raise click.UsageError(f"--resume-with: {error}") from error
    entrypoint = read_section(request, "entrypoint", dict)
    if not entrypoint:
        raise click.UsageError(_("RESUME_NEEDS_SCRIPT"))
    rule = {"itself": True} if words == ["self"] else {"args": words}
    request["entrypoint"] = {**entrypoint, "resume": rule}


def set_entrypoint(request: dict[str, Any], flags: RequestFlags) -> None:
    """Set what is started; arguments without a script are a launch command, which is read as what it means. Raise
    click.UsageError."""
    if flags.args and not (flags.script or flags.module or flags.command or flags.args[0].startswith("-")):
        _set_launch_command(request, flags)
        return
    found = make_entrypoint(
        flags.script, flags.module, flags.args, command=flags.command, processes=flags.processes, file=request
    )
    if found:
        request["entrypoint"] = found


def _set_launch_command(request: dict[str, Any], flags: RequestFlags) -> None:
    """Set what the launch command means that the arguments are, and print it. Raise click.UsageError."""
    try:
        found = recognize_words(flags.args, _read_script)
    except ShellTextError as refused:
        raise click.UsageError(" ".join(messages.render_text(refused.code, get_language(), **refused.params))) from None
    entrypoint = found.entrypoint.to_request()
    if flags.processes:
        entrypoint["processes"] = flags.processes
    request["entrypoint"] = entrypoint
    print_message(_("COMMAND_MEANS", meaning=_describe_entrypoint(entrypoint)))
    for note in (*found.unclear, *found.notes):
        print_message(f"  {' '.join(filter(None, messages.render_text(note.code, get_language(), **note.params)))}")
    if found.entrypoint.command != found.as_is.command:
        print_message(_("COMMAND_AS_IS"))
    if env := {**found.env, **read_section(request, "env", dict)}:
        request["env"] = env
    if found.max_restarts is not None:
        request.setdefault("maxRestarts", found.max_restarts)
    config = read_section(request, DISTRIBUTED_CONFIG, dict)
    if found.framework and "framework" not in config:
        request[DISTRIBUTED_CONFIG] = {**config, "framework": found.framework}


def _describe_entrypoint(entrypoint: Mapping[str, Any]) -> str:
    named = ["-m", entrypoint["module"]] if "module" in entrypoint else [entrypoint.get("script", "")]
    words = shlex.join(entrypoint.get("command") or ["python", *named, *entrypoint["args"]])
    if entrypoint.get("processes") == "node":
        return _("ONCE_PER_NODE", command=words)
    return _("ONCE_PER_GPU", command=words)


def _read_script(script: str) -> bytes:
    """Return the beginning of a script in the working directory; empty where it is not there."""
    with suppress(OSError, ValueError), open(script, "rb") as file:
        return file.read(MAX_SCRIPT_BYTES)
    return b""


def make_entrypoint(
    script: str | None,
    module: str | None,
    args: Sequence[str],
    *,
    command: bool = False,
    processes: str | None = None,
    file: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return the request's entrypoint for these flags, None without one; `--script -m -- pkg.train` is accepted as for
    `python`. `command`: the arguments are a program with its own. `file`: the request so far, whose entry point
    `processes` alone changes. Raise click.UsageError."""
    if script == "-m" and args and not module:
        script, module, args = None, args[0], args[1:]
    starts = {"processes": processes} if processes else {}
    named = {name: value for name, value in (("script", script), ("module", module)) if value}
    if len(named) + command > 1:
        raise click.UsageError(_("SCRIPT_OR_MODULE"))
    if command:
        if not args:
            raise click.UsageError(_("COMMAND_NEEDS_WORDS"))
        return {"command": [*args], **starts}
    if args and not named:
        raise click.UsageError(_("ARGUMENTS_NEED_SCRIPT"))
    if named:
        return {**named, "args": [*args], **starts}
    return {**read_section(dict(file), "entrypoint", dict), **starts} if starts else None


def _set_environments(request: dict[str, Any], flags: RequestFlags, names: NameResolver, *, distributed: bool) -> None:
    """Set the environments. One environment needs no `distributedConfig`; several do, and so do flags that only it has.
    `distributed`: the file has one that is enabled."""
    config = {
        **read_section(request, DISTRIBUTED_CONFIG, dict),
        **({"masterNode": flags.master} if flags.master else {}),
    }
    nodes = (
        list(flags.environments)
        or read_section(config, "nodeIds", list)
        or read_section(request, "environmentIds", list)
    )
    asked = any(
        flags.fields.get(one.name) not in (None, ()) for one in fields.list_fields() if one.parent == DISTRIBUTED_CONFIG
    )
    if request["launchMode"] == NEW and not nodes:
        if config or asked:
            request[DISTRIBUTED_CONFIG] = {**config, "enabled": True}
        return
    if not (len(nodes) > 1 or distributed or flags.master or asked):
        if nodes:
            request["environmentIds"] = names.environments(nodes)
        return
    if config.get("select") and not nodes:
        select = read_section(config, "select", dict)
        excluded = names.environments(read_section(select, "exclude", list))
        config |= {"enabled": True, "select": {**select, **({"exclude": excluded} if excluded else {})}}
    else:
        config |= {"enabled": True, "nodeIds": names.environments(nodes)}
    if config.get("masterNode"):
        [config["masterNode"]] = names.environments([config["masterNode"]])
    elif nodes:
        config["masterNode"] = config["nodeIds"][0]
        if len(nodes) > 1:
            names.say(_("MASTER_CHOSEN", id=config["masterNode"]))
    request[DISTRIBUTED_CONFIG] = config
    request.pop("environmentIds", None)


def _set_data(request: dict[str, Any], flags: RequestFlags, names: NameResolver) -> None:
    """Set dataset and model. A null in a file, or `none`, stays null: the script reads neither."""
    if flags.dataset == NO_VALUE:
        request["datasetId"] = request["datasetVersionId"] = None
    elif flags.dataset is not None:
        dataset, _colon, version = flags.dataset.partition(":")
        request["datasetId"], request["datasetVersionId"] = dataset, version
    if request.get("datasetId", "") is not None:
        dataset_id, version_id = names.dataset(request.get("datasetId"), request.get("datasetVersionId"))
        request["datasetId"], request["datasetVersionId"] = dataset_id, version_id
    if flags.model == NO_VALUE:
        request["modelId"] = None
    elif flags.model or request.get("modelId", "") is not None:
        request["modelId"] = names.model(flags.model or request.get("modelId"))

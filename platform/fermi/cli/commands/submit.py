"""Commands that create a task, and preview what would be created."""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
from rich.console import RenderableType

from fermi.cli import fields, input_files, output
from fermi.cli.error_handler import EXIT_REFUSED
from fermi.cli.memory import render_memory_holders
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, add_follow_options, command
from fermi.cli.request import RequestFlags, build_request
from fermi.cli.task_detail import describe_step, render_placements
from fermi.cli.texts import _
from fermi.client import Problem
from fermi.client.types import ScalingExpectation, ScalingRange, TaskCreated, TaskPreview

Function = TypeVar("Function", bound=Callable[..., Any])


PREVIEW_TIMEOUT_SECONDS = 15.0
"""How long `preview` waits for what environments have installed."""
CODE_OPTIONS = ("code", "code_env", "git", "revision", "git_secret", "requirements")
RESOLVED_OPTIONS = ("environments", "spares", "master", "dataset", "model", "script", "module", "command", "processes",
                    "resume_with", "args", "project", "after")  # fmt: skip


def add_request_options(function: Function) -> Function:
    """Add all options of a request; `submit` and `preview` take the same ones."""
    for option in reversed(
        [
            click.option("-f", "--file", metavar="FILE", help=_("OPTION_SUBMIT_FILE")),
            click.option("--template", metavar="TEMPLATE", help=_("OPTION_TEMPLATE")),
            click.option("--small", is_flag=True, help=_("OPTION_SMALL")),
            click.option("--env", "environments", multiple=True, help=_("OPTION_RECOMMEND_ENV")),
            click.option("--spare", "spares", multiple=True, help=_("OPTION_SPARE")),
            click.option("--master", help=_("OPTION_PREFLIGHT_MASTER")),
            click.option("--dataset", metavar="DATASET[:VERSION]", help=_("OPTION_SUBMIT_MODEL")),
            click.option("--model", help=_("OPTION_SUBMIT_MODEL")),
            click.option("--script", help=_("OPTION_SCRIPTS_SCRIPT")),
            click.option("--module", metavar="MODULE", help=_("OPTION_MODULE")),
            click.option("--command", is_flag=True, help=_("OPTION_COMMAND")),
            click.option("--processes", type=click.Choice(["gpu", "node"]), help=_("OPTION_PROCESSES")),
            click.option("--resume-with", metavar="WORDS", help=_("OPTION_RESUME_WITH")),
            click.option("--project", help=_("OPTION_SUBMIT_PROJECT")),
            click.option("--after", metavar="TASK[:ON[:CHECKPOINT]]", multiple=True, help=_("OPTION_AFTER")),
            click.option("--code", metavar="FOLDER", help=_("OPTION_CODE")),
            click.option("--code-env", metavar="master[:FOLDER]", help=_("OPTION_CODE_ENV")),
            click.option("--git", metavar="URL", help=_("OPTION_GIT")),
            click.option("--revision", help=_("OPTION_REVISION")),
            click.option("--git-secret", metavar="SECRET", help=_("OPTION_GIT_SECRET")),
            click.option("--requirements", metavar="auto|off|FILE", help=_("OPTION_REQUIREMENTS")),
            fields.add_field_options(),
            click.argument("args", nargs=-1, type=click.UNPROCESSED),
        ]
    ):
        function = option(function)
    return function


def _build_request(session: Session, file: str | None, given: dict[str, Any]) -> Any:
    own = {name: given.pop(name) for name in RESOLVED_OPTIONS}
    code = {name: given.pop(name) for name in CODE_OPTIONS}
    template, small = given.pop("template"), given.pop("small")
    flags = RequestFlags(**own, fields=given)
    asked = input_files.read_request(file) if file else {}
    if template:
        asked = {**_load_template(session, template, small, own["environments"]), **asked}
    elif small:
        raise click.UsageError(_("SMALL_NEEDS_TEMPLATE"))
    names = NameResolver(session.fermi)
    request = build_request(asked, flags, names)
    if any(code.values()):
        request["code"] = _choose_code(session, request, names, **code)
    return request


def _choose_code(
    session: Session,
    request: dict[str, Any],
    names: NameResolver,
    *,
    code: str | None,
    code_env: str | None,
    git: str | None,
    revision: str | None,
    git_secret: str | None,
    requirements: str | None,
) -> dict[str, Any]:
    """Return the task's code as the options ask for it; a folder is uploaded first."""
    if sum(map(bool, (code, code_env, git or revision or git_secret))) > 1:
        raise click.UsageError(_("CODE_OR_GIT"))
    if (revision or git_secret) and not git:
        raise click.UsageError(_("REVISION_NEEDS_GIT"))
    found: dict[str, Any] = dict(request.get("code") or {})
    if code:
        from fermi.cli import snapshots

        config = request.get(fields.DISTRIBUTED_CONFIG) or {}
        nodes = config.get("nodeIds") or request.get("environmentIds") or []
        project = request.get("projectId") or names.project_of(nodes)
        found = {**_drop_environments(found), "snapshot": snapshots.send_snapshot(session.fermi, code, project)["id"]}
    elif code_env:
        environment, _colon, path = code_env.partition(":")
        found = {**_drop_environments(found), "environment": environment, "path": path or "."}
    elif git:
        source = {"url": git, "revision": revision, "secret": git_secret}
        found = {**_drop_environments(found), "git": {name: value for name, value in source.items() if value}}
    return {**found, **({"requirements": requirements} if requirements else {})}


def _drop_environments(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name == "requirements"}


def _load_template(session: Session, template: str, small: bool, environments: tuple[str, ...]) -> dict[str, Any]:
    """Return the template's request; print what its environments lack where no others are named."""
    variant = session.fermi.template(template)["small" if small else "full"]
    request: dict[str, Any] = variant["request"]
    if environments:
        del request["distributedConfig"]["masterNode"]
    else:
        for one in variant["missing"]:
            output.print_message(f"{one['message']} {one['hint']}")
    return request


@command("submit", _("MORE_SUBMIT"))
@add_request_options
@add_follow_options
def submit(session: Session, file: str | None, wait: bool, follow: bool, **given: Any) -> int:
    created = session.fermi.tasks.create(_build_request(session, file, given))
    output.print_warnings(created["warnings"])
    if wait or follow:
        from fermi.cli.follow import follow_to_end

        output.print_message(_("TASK_CREATED", id=created["taskId"]))
        return follow_to_end(session, created["taskId"], live=follow)
    output.print_result(created, session.form, lambda: _render_created(created))
    return 0


def _render_created(created: TaskCreated) -> Iterator[RenderableType]:
    info = created["distributedInfo"]
    yield output.make_pairs(
        [
            (_("TASK"), created["taskId"]),
            (_("STATUS"), output.format_status(created["status"])),
            (_("FRAMEWORK"), info["framework"]),
            (_("NODES"), info["nodeCount"]),
            (_("PROCESSES"), info["worldSize"]),
            (_("MASTER"), info["masterNode"]),
        ]
    )
    output.print_message(_("HOW_TO_FOLLOW", id=created["taskId"]))


@command("preview")
@add_request_options
def preview(session: Session, file: str | None, **given: Any) -> int:
    found = _wait_for_preview(session, _build_request(session, file, given))
    output.print_result(found, session.form, lambda: _render_preview(found))
    if session.form == "table":
        output.print_warnings(found["warnings"])
        if _is_incomplete(found):
            output.print_message(_("PREVIEW_LOOKING"))
    if not found["problems"]:
        return 0
    if session.form == "table":
        output.print_error(_("WOULD_BE_REFUSED"))
        output.print_problems(
            [Problem(item["field"], item["error"], item["message"], item["hint"]) for item in found["problems"]]
        )
    return EXIT_REFUSED


def _wait_for_preview(session: Session, request: Any) -> TaskPreview:
    """Return the preview once its environments have been surveyed; after LOOK_S seconds without the surveys."""
    deadline = time.monotonic() + PREVIEW_TIMEOUT_SECONDS
    while _is_incomplete(found := session.fermi.tasks.preview(request)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def _is_incomplete(preview: TaskPreview) -> bool:
    installed = preview.get("packages")  # an older platform says nothing
    return bool(installed and installed["looking"]) or bool(preview.get("memoryLooking"))


def _render_preview(preview: TaskPreview) -> Iterator[RenderableType]:
    if preview["ranks"]:
        rows: list[list[output.Cell]] = [
            [rank["rank"], rank["nodeRank"], rank["localRank"], rank["environmentName"], rank["environmentId"],
             "cpu" if rank["device"] is None else f"gpu {rank['device']}"]
            for rank in preview["ranks"]
        ]  # fmt: skip
        headers = [_("RANK"), _("NODE"), _("LOCAL_RANK"), _("ENVIRONMENT"), "ID", _("DEVICE")]
        yield output.make_table(headers, rows, title=_("PROCESSES_COUNTED", count=preview["worldSize"]))
        yield from _render_variables([*preview["ranks"]])
    yield from render_placements(preview.get("environments") or ())  # an older platform has none
    yield from render_memory_holders(preview.get("inUse") or ())
    if proposal := preview.get("proposal"):  # an older platform has none
        yield from render_defaults(proposal)
    if preview.get("batch"):  # an older platform has none
        yield output.make_pairs(describe_step(preview))
    if scaled := preview.get("scaling"):
        yield from render_expected_scaling(scaled)
    if preview["command"]:
        yield output.make_heading(_("COMMAND_OF_EACH_PROCESS"))
        yield output.make_line(" ".join(preview["command"]))
    for file in preview["files"]:
        yield output.make_heading(_("FILE_NAME", name=file["name"]))
        yield output.make_line(file["content"].rstrip("\n"))
    for artifact in preview["artifacts"]:
        yield output.make_heading(f"{artifact['kind']} {artifact['name']}")
        yield output.make_line(artifact["content"].rstrip("\n"))


def render_defaults(proposal: Any) -> Iterator[RenderableType]:
    """Return what the framework chose where the request leaves it open, and why."""
    values = {**proposal["strategy"], **proposal["options"]}
    yield output.make_heading(_("CHOSEN_FOR_ENVIRONMENTS"))
    yield output.make_line(" ".join(f"{name}={output.format_cell(value)}" for name, value in values.items()) or "-")
    yield from (output.make_line(f"  {reason['message']}") for reason in proposal["reasons"])


def _render_variables(ranks: list[Any]) -> Iterator[RenderableType]:
    """Return variables that all ranks share once, and those that differ by rank in a table."""
    names = sorted({name for rank in ranks for name in rank["env"]})
    own = [name for name in names if len({rank["env"].get(name) for rank in ranks}) > 1]
    shared = [f"{name}={ranks[0]['env'][name]}" for name in names if name not in own]
    if shared:
        yield output.make_heading(_("ENVIRONMENT_OF_ALL_RANKS"))
        yield output.make_line("\n".join(shared))
    if own:
        yield output.make_heading(_("ENVIRONMENT_OF_EACH_RANK"))
        yield output.make_table([_("RANK"), *own], [[rank["rank"], *map(rank["env"].get, own)] for rank in ranks])


def render_expected_scaling(expectation: ScalingExpectation) -> Iterator[RenderableType]:
    """Yield the table and its assumptions."""
    rows: list[list[output.Cell]] = [
        [row["nodes"], row["processes"], f"{row['theoretical']:.3g}x", _format_range(row["speedup"], "{:.3g}x"),
         _format_range(row["efficiency"], "{:.0%}")]
        for row in expectation["rows"]
    ]  # fmt: skip
    headers = [_("NODES"), _("PROCESSES"), _("THEORETICAL_SPEED_UP"), _("EXPECTED_SPEED_UP"), _("EFFICIENCY")]
    yield output.make_table(headers, rows, title=_("EXPECTED_SCALING"))
    yield output.make_line(_("EXPECTED_TOKENS", span=_format_range(expectation["tokensPerSecond"], "{:.4g}")))
    yield from (output.make_line(f"  {reason['message']}") for reason in expectation["reasons"])


def _format_range(limits: ScalingRange, form: str) -> str:
    low, high = form.format(limits["low"]), form.format(limits["high"])
    return low if low == high else f"{low} – {high}"

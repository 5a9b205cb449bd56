"""Commands for sweeps: many trials of one request with other parameters."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.console import RenderableType

from fermi import messages
from fermi.cli import input_files, output, texts
from fermi.cli.error_handler import EXIT_REFUSED, EXIT_TRAINING_FAILED
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_age
from fermi.client.errors import Problem
from fermi.client.types import Sweep, SweepImportance, SweepItem, SweepPreview, SweepTrial, SweepTrialCounts
from fermi.jobs import spec
from fermi.sweeps.documents import convert_document, merge_requests

ACTIONS = ("list", "status", "trials", "best", "importance", "pause", "resume", "stop", "delete", "clone")


@command("sweep", _("MORE_SWEEP"))
@click.argument("action", metavar=f"FILE|{'|'.join(ACTIONS)}")
@click.argument("sweep", metavar="[SWEEP]", required=False)
@click.option("-r", "--request", metavar="FILE", help=_("OPTION_SWEEP_REQUEST"))
@click.option("--trials", type=click.IntRange(1), help=_("OPTION_SWEEP_TRIALS"))
@click.option("--parallel", type=click.IntRange(1), help=_("OPTION_SWEEP_PARALLEL"))
@click.option("--dry-run", is_flag=True, help=_("OPTION_SWEEP_DRY_RUN"))
@click.option("--wait", is_flag=True, help=_("OPTION_SWEEP_WAIT"))
@click.option("--project", help=_("OPTION_SWEEP_PROJECT"))
@click.option("--name", help=_("OPTION_SWEEP_NAME"))
@click.option("--hp", "hyperparameters", multiple=True, metavar="KEY=VALUE", help=_("OPTION_SWEEP_HP"))
@click.option("--arg", "args", multiple=True, metavar="WORD", help=_("OPTION_SWEEP_ARG"))
@click.option("--from-start", is_flag=True, help=_("OPTION_SWEEP_FROM_START"))
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
def sweep(session: Session, action: str, sweep: str | None, **options: Any) -> int:
    if action not in ACTIONS:
        return _start(session, action, options)
    if action == "list":
        where = NameResolver(session.fermi).project(options["project"]) if options["project"] else None
        items = session.fermi.sweeps.list(project=where).first(options["limit"])
        output.print_result({"items": items}, session.form, lambda: _render_list(items))
        return 0
    if not sweep:
        raise click.UsageError(_("SAY_WHICH_SWEEP", action=action))
    return _do(session, action, sweep, options)


def _start(session: Session, file: str, options: dict[str, Any]) -> int:
    body, problems = convert_document(input_files.read_request(file))
    if problems:
        output.print_problems([_render_problem(problem) for problem in problems])
        return EXIT_REFUSED
    if options["request"]:
        body["request"] = _merge_request(body, options["request"])
    if options["name"]:
        body["name"] = options["name"]
    if options["parallel"]:
        body["parallel"] = options["parallel"]
    if options["trials"]:
        body["budget"] = {**(body.get("budget") or {}), "trials": options["trials"]}
    sweeps = session.fermi.sweeps
    if options["dry_run"]:
        preview = sweeps.preview(body)
        output.print_result(preview, session.form, lambda: _render_preview(preview))
        return EXIT_REFUSED if preview["problems"] else 0
    made = sweeps.create(body)
    output.print_message(_("SWEEP_STARTED", id=made["id"]))
    output.print_warnings(made["warnings"])
    if options["wait"]:
        made = sweeps.wait(made["id"])
    output.print_result(made, session.form, lambda: _render_sweep(made))
    return EXIT_TRAINING_FAILED if options["wait"] and made["best"] is None else 0


def _merge_request(body: Mapping[str, Any], file: str) -> dict[str, Any]:
    names = parameters.keys() if isinstance(parameters := body.get("parameters"), Mapping) else ()
    return merge_requests(body.get("request"), input_files.read_request(file), names)


def _do(session: Session, action: str, sweep: str, options: dict[str, Any]) -> int:
    sweeps = session.fermi.sweeps
    match action:
        case "status":
            found = sweeps.wait(sweep) if options["wait"] else sweeps.get(sweep)
            output.print_result(found, session.form, lambda: _render_sweep(found))
        case "trials":
            items = sweeps.trials(sweep).first(options["limit"])
            output.print_result({"items": items}, session.form, lambda: _render_trials(items))
        case "best":
            best = sweeps.get(sweep)["bestTrial"]
            if best is None:
                output.print_error(_("SWEEP_HAS_NO_BEST"))
                return EXIT_TRAINING_FAILED
            output.print_result(best, session.form, lambda: _render_trial(best))
        case "importance":
            shares = sweeps.importance(sweep)
            output.print_result(shares, session.form, lambda: _render_importance(shares))
        case "clone":
            task = sweeps.clone_best(
                sweep,
                name=options["name"],
                hyperparameters=input_files.parse_values(options["hyperparameters"], "--hp"),
                args=options["args"],
                resume=not options["from_start"],
            )
            output.print_result(task, session.form, lambda: [output.make_pairs([(_("TASK"), task["taskId"])])])
        case "delete":
            sweeps.delete(sweep)
            output.print_message(_("SWEEP_DELETED", id=sweep))
        case _:
            changed = {"pause": sweeps.pause, "resume": sweeps.resume, "stop": sweeps.stop}[action](sweep)
            output.print_result(changed, session.form, lambda: _render_sweep(changed))
    return 0


def _render_problem(problem: spec.Problem) -> Problem:
    message, hint = messages.render_text(problem.code, texts.get_language(), **problem.params)
    return Problem(problem.field, problem.code, message, hint)


def _render_list(items: list[SweepItem]) -> Iterator[RenderableType]:
    rows: list[list[output.Cell]] = [
        [
            one["id"],
            one["name"],
            one["owner"],
            output.format_status(one["status"]),
            one["method"],
            one["metric"],
            one["bestValue"],
            f"{one['trials']['complete']}/{one['trials']['total']}",
            format_age(one["createdAt"]),
        ]
        for one in items
    ]
    headers = ["ID", _("NAME"), _("OWNER"), _("STATUS"), _("SWEEP_METHOD"), _("SWEEP_METRIC"), _("SWEEP_BEST")]
    yield output.make_table([*headers, _("SWEEP_TRIALS"), _("CREATED")], rows)


def _render_sweep(found: Sweep) -> Iterator[RenderableType]:
    trials, reason, best = found["trials"], found["reason"], found["bestTrial"]
    yield output.make_pairs(
        [
            (_("SWEEP"), f"{found['name']} ({found['id']})"),
            (_("STATUS"), output.format_status(found["status"])),
            (_("REASON"), reason["message"] if reason else None),
            ("", reason["hint"] if reason else None),
            (_("SWEEP_METHOD"), found["method"]),
            (_("SWEEP_METRIC"), f"{found['metric']} ({found['goal']})"),
            (_("SWEEP_TRIALS"), _render_counts(trials)),
            ("GPU-h", f"{found['gpuHours']:.2f}"),
        ]
    )
    if best:
        yield output.make_heading(_("SWEEP_BEST"))
        yield from _render_trial(best)


def _render_counts(trials: SweepTrialCounts) -> str:
    return _(
        "SWEEP_COUNTS",
        total=trials["total"],
        running=trials["running"],
        paused=trials["paused"],
        complete=trials["complete"],
        pruned=trials["pruned"],
        failed=trials["failed"],
        stopped=trials["stopped"],
    )


def _render_trial(trial: SweepTrial) -> Iterator[RenderableType]:
    why = trial["why"]
    yield output.make_pairs(
        [
            (_("SWEEP_TRIAL"), trial["number"]),
            (_("TASK"), trial["taskId"]),
            (_("STATUS"), output.format_status(trial["status"])),
            (_("SWEEP_VALUE"), trial["value"]),
            *((name, str(value)) for name, value in trial["parameters"].items()),
            (_("REASON"), why["message"] if why else None),
        ]
    )


def _render_trials(items: list[SweepTrial]) -> Iterator[RenderableType]:
    names = list(dict.fromkeys(name for one in items for name in one["parameters"]))
    rows: list[list[output.Cell]] = [
        [
            one["number"],
            one["taskId"],
            output.format_status(one["status"]),
            one["value"],
            *(_format_parameter(one["parameters"].get(name)) for name in names),
            one["why"]["message"] if one["why"] else None,
        ]
        for one in items
    ]
    yield output.make_table(["#", _("TASK"), _("STATUS"), _("SWEEP_VALUE"), *names, _("REASON")], rows)


def _format_parameter(value: Any) -> str | None:
    return None if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _render_importance(found: SweepImportance) -> Iterator[RenderableType]:
    rows: list[list[output.Cell]] = [[one["name"], f"{one['share']:.1%}"] for one in found["items"]]
    yield output.make_table([_("SWEEP_PARAMETER"), _("SWEEP_SHARE")], rows)
    count = found["trials"]
    yield _("SWEEP_IMPORTANCE_OF", count=count) if found["items"] else _("SWEEP_IMPORTANCE_NONE", count=count)


def _render_preview(preview: SweepPreview) -> Iterator[RenderableType]:
    if preview["problems"]:
        output.print_problems(
            [Problem(one["field"], one["error"], one["message"], one["hint"]) for one in preview["problems"]]
        )
        return
    output.print_warnings(preview["warnings"])
    names = list(dict.fromkeys(name for one in preview["parameters"] for name in one))
    rows: list[list[output.Cell]] = [
        [number, *(_format_parameter(one.get(name)) for name in names)]
        for number, one in enumerate(preview["parameters"])
    ]
    yield output.make_pairs([(_("SWEEP_TRIALS"), preview["count"])])
    yield output.make_table(["#", *names], rows)

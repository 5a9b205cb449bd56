"""Answers what differs between two runs, with the lines of their code and the step at which their curves part."""

from typing import Any

from apps.accounts.models import User
from apps.code import selectors
from apps.common.texts import render_text
from apps.runs.run_facts import read_run_facts
from apps.runs.sister_runs import choose_names, find_sisters, read_curves
from apps.training.public import CurveReader, Task, find_task
from fermi.runs import divergence
from fermi.runs.differences import (
    MAX_DIFFERENCES,
    ChangedFile,
    ComparisonGap,
    RunFacts,
    list_differences,
    list_gaps,
)
from fermi.runs.divergence import Basis, Divergence, Verdict, find_divergence

MAX_FILES = 300
_CODES = {
    (Verdict.PARTED, Basis.OWN): "DIVERGENCE_PARTED_OWN",
    (Verdict.PARTED, Basis.SISTERS): "DIVERGENCE_PARTED_SISTERS",
    (Verdict.TOGETHER, Basis.OWN): "DIVERGENCE_TOGETHER_OWN",
    (Verdict.TOGETHER, Basis.SISTERS): "DIVERGENCE_TOGETHER_SISTERS",
    (Verdict.TOO_FEW, Basis.OWN): "DIVERGENCE_TOO_FEW",
}


def compare_runs(user: User, left_id: str, right_id: str) -> dict[str, Any]:
    """Return the answer of `GET /runs/differences`. Raises ApiError 404 for a run that the user may not see."""
    tasks = [find_task(user, one) for one in (left_id, right_id)]
    left, right = (read_run_facts(task) for task in tasks)
    files, gaps = _compare_snapshots(left, right)
    changed = [ChangedFile(one["path"], one["change"]) for one in files]
    found, gaps = list_differences(left, right, changed), [*list_gaps(left, right), *gaps]
    curves, are_whole = _compare_curves(*tasks)
    if not curves:
        gaps.append(ComparisonGap("DIVERGENCE_NO_CURVES"))
    if not are_whole:
        gaps.append(ComparisonGap("DIVERGENCE_CURVES_INCOMPLETE"))
    return {
        "left": _serialize_run(tasks[0]),
        "right": _serialize_run(tasks[1]),
        "differences": [
            {
                "kind": one.kind,
                "name": one.name,
                "left": one.left,
                "right": one.right,
                "weight": one.weight,
                **_serialize_text(one.code, one.params),
            }
            for one in found[:MAX_DIFFERENCES]
        ],
        "leftOut": max(0, len(found) - MAX_DIFFERENCES),
        "curves": curves,
        "files": files[:MAX_FILES],
        "filesLeftOut": max(0, len(files) - MAX_FILES),
        "gaps": [_serialize_text(one.code, one.params) for one in gaps],
    }


def _serialize_run(task: Task) -> dict[str, Any]:
    return {"taskId": task.pk, "taskName": task.name, "status": task.state, "createdAt": task.created_at}


def _serialize_text(code: str, params: Any) -> dict[str, str]:
    message, hint = render_text(code, params)
    return {"code": code, "message": message, "hint": hint}


def _compare_snapshots(left: RunFacts, right: RunFacts) -> tuple[list[dict[str, Any]], list[ComparisonGap]]:
    """Return the files that differ, and what could not be read."""
    if not left.snapshot or not right.snapshot or left.snapshot == right.snapshot:
        return [], []
    try:
        return selectors.compare_snapshots(left.snapshot, right.snapshot)["items"], []
    except OSError:  # no task that is left has needed it
        return [], [ComparisonGap("DIFFERENCE_CODE_GONE")]


def _compare_curves(left: Task, right: Task) -> tuple[list[dict[str, Any]], bool]:
    """Return where each curve that both runs have parts, and whether all of their points were read. The noise is known
    from the sister runs of the one of the two that has more of them."""
    reader = CurveReader((left, right))
    known = reader.list_names()
    names = choose_names(known[left.pk], known[right.pk])
    own = read_curves(reader, names)
    names = [name for name in names if all(name in own.get(task.pk, {}) for task in (left, right))]
    if not names:
        return [], reader.is_complete
    pair = left.pk, right.pk
    sisters = [find_sisters(task, pair) for task in (left, right)]
    place = 0 if len(sisters[0]) >= len(sisters[1]) else 1
    others = CurveReader(sisters[place])
    theirs = read_curves(others, names)
    compared = []
    for name in names:
        group = [own[pair[place]][name], *(one[name] for one in theirs.values() if name in one)]
        curves = own[left.pk][name], own[right.pk][name]
        compared.append(_serialize_divergence(name, find_divergence(*curves, group if len(group) > 1 else ())))
    return compared, reader.is_complete and others.is_complete


def _serialize_divergence(name: str, found: Divergence) -> dict[str, Any]:
    params = {
        "metric": name, "step": found.step, "left": _format(found.left), "right": _format(found.right),
        "margin": _format(found.margin), "sisters": found.sisters, "points": found.points,
        "needed": divergence.MIN_POINTS,
    }  # fmt: skip
    return {
        "metric": name,
        "verdict": found.verdict.value,
        "basis": found.basis.value,
        "sisters": found.sisters,
        "points": found.points,
        "step": found.step,
        "left": found.left,
        "right": found.right,
        "margin": found.margin,
        "identicalUntil": found.identical_until,
        **_serialize_text(_CODES[found.verdict, found.basis], params),
    }


def _format(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"

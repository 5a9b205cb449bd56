"""The table of runs over 1,000,000 ended tasks with 8 parameters and 4 curves each, on a private PostgreSQL (without
fsync, like that of the tests) and on SQLite."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.table import Figure, FigureTarget
from bench.temp_platform import ROOT, build_environment, make_temp_folder, prepare_database, run_postgresql
from bench.timing import measure_seconds

TASKS, PROJECTS, ROUNDS = int(os.environ.get("BENCH_RUNS", "1000000")), 200, 5
MEMBERS = {"3 projects": ["p20", "p77", "p150"], "1 small": ["empty"]}
COLUMNS = ["lr", "optimizer", "metric.val_loss.best", "metric.acc", "gpuHours", "duration"]
QUERIES: dict[str, dict[str, Any]] = {
    "the newest": {},
    "the oldest": {"sort": "created"},
    "a common state": {"query": "status:failed"},
    "a rare parameter": {"query": "rare:1"},
    "one run by its seed": {"query": "seed:4711"},
    "a common parameter": {"query": "lr:0.1"},
    "a range that none is in": {"query": "lr>100"},
    "a value that none has": {"query": "optimizer:nadam"},
    "two common conditions, none has both": {"query": "lr:0.1 status:failed"},
    "three common conditions, few have all": {"query": "epochs:7 metric.val_loss<1 status:failed"},
    "a common and a rare condition": {"query": "status:failed tag:paper"},
    "a tag that many have": {"query": "tag:baseline"},
    "by a curve, ascending": {"sort": "metric.val_loss.best"},
    "by a curve, descending": {"sort": "-metric.acc.best"},
    "by a curve, of a common state": {"query": "status:failed", "sort": "metric.val_loss.best"},
    "by a curve, none matches": {"query": "lr:0.1 status:failed", "sort": "metric.val_loss.best"},
    "by a curve that few have": {"sort": "metric.rare_score"},
    "by a parameter": {"sort": "-lr"},
    "by cost": {"sort": "-gpuHours"},
    "by cost, of a tag": {"query": "tag:baseline", "sort": "-gpuHours"},
    "by duration, of a rare tag": {"query": "tag:paper", "sort": "-duration"},
    "by name": {"sort": "name"},
    "a word that few names have": {"query": "4711-"},
    "a word that all names have": {"query": "run"},
    "a word that no name has": {"query": "nothinglikeit"},
    "one or the other, rare": {"query": "tag:paper or rare:1 or seed:99"},
    "one or the other, common": {"query": "status:failed or lr:0.1"},
    "negation": {"query": "-status:failed -tag:baseline lr<0.05"},
    "all but one": {"query": "-seed:5"},
    "of a week": {"query": "created>={begins} created<{ends} status:failed"},
    "an owner's failures": {"query": "owner:user-3 status:failed"},
    "a project, by a curve": {"query": "project:p20", "sort": "metric.val_loss.best"},
    "ten conditions": {
        "query": "status:succeeded,failed lr>=0.0001 lr<0.05 epochs>3 metric.val_loss<9 metric.acc>0.1 "
        "optimizer:adam,sgd framework:jax,deepspeed -tag:paper duration>1m"
    },
    "archived runs": {"archived": "true"},
    "archived runs, by a curve": {"archived": "true", "sort": "metric.val_loss.best"},
    "page 100 of 50": {"cursor": "{cursor}"},
}
GROUPED = {"query": "status:failed", "by": ["lr", "optimizer"], "column": ["metric.val_loss.best", "gpuHours"]}


def measure() -> Iterator[Figure]:
    """Return the medians of the slowest user."""
    found = {}
    with make_temp_folder() as data, run_postgresql() as servers:
        found["PostgreSQL"] = _run(build_environment(data, **servers))
    with make_temp_folder() as data:
        prepare_database(data)
        found["SQLite"] = _run(build_environment(data))
    for database, figures in found.items():
        yield Figure(f"{database}: making of {TASKS:,} tasks", figures.pop("made"), "s")
        for name, by_asker in figures.items():
            asker, slowest = max(by_asker.items(), key=lambda one: one[1])
            yield Figure(f"{database}: {name} ({asker})", 1e3 * slowest, "ms", target=FigureTarget(100))


def _run(env: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.runs"]
    answer = subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    found: dict[str, Any] = json.loads(answer)
    return found


def _measure_inside() -> dict[str, Any]:
    from statistics import median

    from bench import runs_seed

    made = measure_seconds(partial(runs_seed.make_seed, TASKS, PROJECTS, MEMBERS))
    askers = runs_seed.list_askers(MEMBERS)
    found: dict[str, Any] = {"made": made}
    for name, ask in list_questions(askers):
        found[name] = {who: median(measure_seconds(one) for _ in range(ROUNDS)) for who, one in ask.items()}
    return found


def list_questions(askers: dict[str, Any]) -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    """Yield each question with what asks it, by who asks."""
    from apps.runs import table

    whole = askers["administrator"]
    page, cursor, far = 0, "", None
    while page < 100 and cursor is not None:
        far = table.list_runs(whole, {"pageSize": 50, "cursor": cursor})
        page, cursor = page + 1, far["nextCursor"]
    assert far is not None
    created = far["items"][0]["task"]["createdAt"]
    places = {"begins": f"{created:%Y-%m-%d}", "ends": f"{created:%Y-%m-%dT%H:%M}", "cursor": far["nextCursor"] or ""}
    for name, given in QUERIES.items():
        filled = {key: _fill(value, places) for key, value in given.items()}
        asked: dict[str, Any] = {"pageSize": 50, "column": COLUMNS, **filled}
        yield name, {who: partial(table.list_runs, user, asked) for who, user in askers.items()}
    yield "groups by two parameters", {who: partial(table.group_runs, user, GROUPED) for who, user in askers.items()}
    yield "columns", {who: partial(table.list_columns, user, "") for who, user in askers.items()}
    yield "completion", {who: partial(table.complete_text, user, "tag:b", 5) for who, user in askers.items()}


def _fill(text: str, places: dict[str, str]) -> str:
    return text.format(**places) if "{" in text else text


if __name__ == "__main__":
    import django

    django.setup()
    print(json.dumps(_measure_inside()))

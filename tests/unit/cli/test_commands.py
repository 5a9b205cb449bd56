import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.cells import cell_len

from fermi.cli.follow import TaskProgress
from fermi.cli.main import run_command
from fermi.cli.registry import COMMANDS
from fermi.client import config, logs
from fermi.client.login import issue_token
from tests.clean_environment import as_in_a_terminal
from tests.fakes.api import DROP, FakeApi, Reply, Request, data, event, page, refused, stream
from tests.unit.cli.api_responses import CREATED, brief, dataset, environment, model, task, version
from tests.unit.cli.conftest import Command

TASK = "/training-tasks/task-1"
PLATFORM = Path(config.__file__).parents[2]
ME = {
    "username": "admin",
    "email": "",
    "isAdministrator": True,
    "language": "zh",
    "projects": [{"id": "project-1", "name": "默认", "role": "maintainer"}],
}
PROBLEMS = [
    ("distributedConfig.masterNode", "MASTER_REQUIRED", "several environments need a master", "choose one of them"),
    ("taskName", "NAME_REQUIRED", "a task needs a name", ""),
]


def shell(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fermi.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(PLATFORM), **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


# Results --------------------------------------------------------------------------------------------------------------


def test_json_output_is_only_the_data(api: FakeApi, command: Command) -> None:
    api.on("GET", TASK, data(task()))
    result = command("get", "task-1", "-o", "json")
    assert (result.code, json.loads(result.out), result.err) == (0, task(), "")


def test_yaml_output_is_only_the_data(api: FakeApi, command: Command) -> None:
    api.on("GET", "/training-tasks", page([brief()]))
    result = command("list", "-o", "yaml")
    assert yaml.safe_load(result.out) == {"items": [brief()], "total": 1, "totalIsExact": True}
    assert "预训练" in result.out


def test_wide_characters_keep_columns_aligned(api: FakeApi, command: Command) -> None:
    items = [environment(1, "环境"), environment(2, "a", zone={"id": "z", "name": "上海 A"})]
    api.on("GET", "/dev-environments", page(items))
    head, first, second = command("envs", lang="zh").out.splitlines()
    columns = {
        cell_len(line[: line.index(word)]) for line, word in ((head, "状态"), (first, "running"), (second, "running"))
    }
    assert len(columns) == 1


def test_a_pipe_gets_whole_lines_without_colour(api: FakeApi, command: Command) -> None:
    name = "n" * 300
    api.on("GET", "/training-tasks", page([brief(taskName=name)]))
    out = command("list").out
    assert name in out
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_markup_in_names_is_not_interpreted(api: FakeApi, command: Command) -> None:
    api.on("GET", "/models", page([model(1, "[red]x[/red] :smile:")]))
    assert "[red]x[/red] :smile:" in command("models").out


def test_a_truncated_list_says_so(api: FakeApi, command: Command) -> None:
    api.on("GET", "/training-tasks", page([brief()] * 30))
    result = command("list", "-n", "2", "--status", "running", "--status", "queued")
    assert len(result.out.splitlines()) == 3
    assert "2 of 30" in result.err
    assert api.requests[0].queries["status"] == ["running", "queued"]
    assert json.loads(command("list", "--all", "-o", "json").out)["total"] == 30


def test_a_capped_count_says_that_there_are_more(api: FakeApi, command: Command) -> None:
    answer = {"items": [brief()], "total": 5000, "totalIsExact": False, "page": 1, "pageSize": 1, "nextCursor": "x"}
    api.on("GET", "/training-tasks", data(answer))
    assert "1 of 5000+" in command("list", "-n", "1").err


def test_a_dataset_in_preparation_shows_its_progress(api: FakeApi, command: Command) -> None:
    wrong = {"code": "DATA_EMPTY", "message": "there is no text", "hint": ""}
    versions = [version(1), version(2, "preparing", progress=0.25), version(3, "failed", error=wrong)]
    api.on("GET", "/datasets", page([dataset(1, "stdlib", *versions)]))
    out = command("datasets").out
    assert "25%" in out
    assert "there is no text" in out


def test_a_task_shows_its_nodes_ranks_and_attempts(api: FakeApi, command: Command) -> None:
    attempts = [
        {**task()["attempts"][0], "outcome": {"code": "RANK_KILLED", "message": "rank 1 was killed", "hint": ""}}
    ]
    api.on("GET", TASK, data(task(attempts=attempts)))
    out = command("get", "task-1").out
    for word in ("pytorch-dev-env", "2–5", "10/1000", "rank 1 was killed", "A100 (emulated)"):
        assert word in out


HOLDS = {"way": "inside", "code": "WAY_INSIDE_GPUS", "message": "it holds the eight"}
CLAIM = {"way": "beside", "code": "WAY_BESIDE_CLAIM", "message": "its node has more"}


def rows_of(out: str, title: str) -> list[str]:
    """Of the table under a title, without its head."""
    lines = out[out.index(title) :].partition("\n\n")[0].splitlines()
    return [" ".join(line.split()) for line in lines[2:]]


def test_a_task_shows_run_location_and_reason_of_each_environment(api: FakeApi, command: Command) -> None:
    first, second = task()["nodes"]
    api.on("GET", TASK, data(task(nodes=[{**first, "runsIn": HOLDS}, {**second, "runsIn": CLAIM}])))
    assert rows_of(command("get", "task-1").out, "Where the ranks run") == [
        "pytorch-dev-env env-001 inside the environment it holds the eight",
        "llm-training-env env-003 outside the environment its node has more",
    ]
    assert "环境内" in command("get", "task-1", lang="zh").out
    api.on("GET", TASK, data(task(nodes=[{**first, "runsIn": None}, second])))
    assert "Where the ranks run" not in command("get", "task-1").out


def test_a_running_task_shows_rank_progress(api: FakeApi, command: Command) -> None:
    pulse = {
        "rank": 0, "at": "2026-11-21T00:00:12.5Z", "phase": "evaluating", "step": 41,
        "steppedAt": "2026-11-21T00:00:05Z", "sinceStep": 7.5, "stepSeconds": 0.21, "waitingShare": 0.25,
        "printedAt": None,
        "gpuBytes": None, "rssBytes": 1 << 29, "cpu": 1.5,
    }  # fmt: skip
    api.on("GET", TASK, data(task()))
    api.on("GET", f"{TASK}/pulses", data({"taskId": "task-1", "attempt": 1, "ranks": [pulse]}))
    out = command("get", "task-1").out
    for word in ("evaluating", "41", "7s", "0.21 s", "25%", "512 MiB"):
        assert word in out
    found = json.loads(command("get", "task-1", "-o", "json").out)
    assert [rank["pulse"] for rank in found["ranks"]] == [pulse]


def test_non_finite_numbers_are_printed_as_nan(api: FakeApi, command: Command) -> None:
    values = ({"loss": None, "lr": 0.1}, {"lr": 0.1})
    points = [{"attempt": 1, "rank": 0, "step": n, "at": "2026-11-21T00:00:00Z", "values": each}
              for n, each in enumerate(values)]  # fmt: skip
    api.on("GET", f"{TASK}/metrics", data({"items": points, "next": None}))
    _, first, second = command("metrics", "task-1").out.splitlines()
    assert (first.split()[3:5], second.split()[3:5]) == (["NaN", "0.1"], ["-", "0.1"])
    api.on("GET", TASK, data(task(loss=None, lossNotFinite=True)))
    assert ["Loss", "NaN"] in [line.split() for line in command("get", "task-1").out.splitlines()]
    progress = TaskProgress.from_task(task(loss=None, lossNotFinite=True))  # type: ignore[arg-type]
    assert "loss NaN" in str(progress)
    progress.hear("status", brief(step=11, loss=2.0, lossNotFinite=False))
    assert "loss 2.0000" in str(progress)
    progress.hear("status", brief(step=12, loss=None, lossNotFinite=True))
    assert "12/1000  loss NaN" in str(progress)


def test_metrics_have_a_column_for_each_number(api: FakeApi, command: Command) -> None:
    points = [
        {
            "id": n,
            "attempt": 1,
            "rank": 0,
            "step": n,
            "at": "2026-11-21T00:00:00Z",
            "values": {"loss": 2.5 - n, name: 7},
        }
        for n, name in enumerate(("tokens_per_s", "val_loss"))
    ]
    api.on("GET", f"{TASK}/metrics", data({"items": points, "next": None}))
    head, first, second = command("metrics", "task-1").out.splitlines()
    assert head.split()[3:6] == ["loss", "tokens_per_s", "val_loss"]
    assert first.split()[3:6] == ["2.5", "7", "-"]
    assert second.split()[3:6] == ["1.5", "-", "7"]
    assert json.loads(command("metrics", "task-1", "--last", "1", "-o", "json").out)["items"] == points[1:]


def test_log_patterns_are_listed_and_changed(api: FakeApi, command: Command) -> None:
    fields = [{"name": "loss", "shownAs": "loss", "unit": ""}, {"name": "time", "shownAs": "", "unit": "ms"}]
    pattern = {"key": "abc", "line": "iter {iter}: loss {loss}", "example": "iter 1", "enabled": True, "fields": fields}
    api.on("GET", f"{TASK}/log-patterns", data({"items": [pattern]}))
    api.on("PATCH", f"{TASK}/log-patterns/abc", data(pattern))
    out = command("log-patterns", "task-1").out
    assert "iter {iter}: loss {loss}" in out
    assert "loss, time (ms) → –" in out
    command("log-patterns", "task-1", "--off", "1", "--rename", "loss=train_loss", "--ignore", "time")
    sent = [request.body for request in api.list_requests("PATCH", f"{TASK}/log-patterns/abc")]
    assert sent == [{"enabled": False}, {"fields": {"time": "", "loss": "train_loss"}}]
    assert command("log-patterns", "task-1", "--off", "2").code == 2
    assert command("log-patterns", "task-1", "--rename", "loss").code == 2
    assert command("log-patterns", "task-1", "--ignore", "nope").code == 2


def test_logs_are_printed_as_they_are_and_as_json_lines(api: FakeApi, command: Command) -> None:
    lines = [{"rank": 1, "offset": 0, "text": '[bold]{"step": 1}'}]
    api.on("GET", f"{TASK}/logs", data({"rank": "all", "attempt": 1, "lines": lines, "cursor": "c", "end": True}))
    assert command("logs", "task-1", "--rank", "all").out == '[1] [bold]{"step": 1}\n'
    found = command("logs", "task-1", "--rank", "all", "-o", "json").out
    assert json.loads(found) == {"attempt": 1, "rank": 1, "offset": 0, "text": '[bold]{"step": 1}'}
    assert command("logs", "task-1", "--rank", "none").code == 2


def logged(*texts: str, **more: Any) -> Reply:
    lines = [{"offset": number, "text": text, **more} for number, text in enumerate(texts)]
    return data({"rank": "0", "attempt": 1, "lines": lines, "cursor": "c", "end": True})


def test_lines_are_filtered_by_expression_level_and_time(api: FakeApi, command: Command) -> None:
    api.on("GET", f"{TASK}/logs", logged("hit"))
    said = command("logs", "task-1", "--grep", "h.t", "--level", "error", "--until", "2026-11-22T10:00Z")
    assert said.out == "hit\n"
    command("logs", "task-1", "--grep", "h.t", "--fixed", "--since", "10m")
    command("logs", "task-1", "--search", "h.t")
    first, second, third = (dict(request.query) for request in api.list_requests("GET", f"{TASK}/logs"))
    until = {"until": "2026-11-22T10:00:00+00:00"}
    assert first == {"rank": "0", "search": "h.t", "regex": "true", "level": "error", **until}
    ago = datetime.now(UTC) - datetime.fromisoformat(second.pop("since"))
    assert timedelta(minutes=10) <= ago < timedelta(minutes=15)
    assert second == third == {"rank": "0", "search": "h.t"}


@pytest.mark.parametrize(
    "wrong",
    [["--since", "soon"], ["--until", "32d1"], ["--level", "loud"], ["--grep", "a", "--search", "b"],
     ["--first-error", "-f"], ["--first-error", "--level", "error"]],
)  # fmt: skip
def test_invalid_filters_are_refused_before_anything_is_sent(api: FakeApi, command: Command, wrong: list[str]) -> None:
    assert command("logs", "task-1", *wrong).code == 2
    assert api.list_requests("GET", f"{TASK}/logs") == []


FIRST = {"rank": 3, "offset": 40, "text": "ERROR: bad", "level": "error"}


def test_the_first_error_is_shown_with_its_context(api: FakeApi, command: Command) -> None:
    answer = {"attempt": 2, "found": FIRST, "complete": True, "windowBytes": 65536, "ranksUnread": 0}
    block = [{"offset": 40 + n, "text": f"bad {n}", "level": "error"} for n in range(3)]
    block.append({"offset": 50, "text": "on"})
    api.on("GET", f"{TASK}/logs/first-error", data(answer))
    api.on("GET", f"{TASK}/logs", data({"rank": "3", "attempt": 2, "lines": block, "cursor": "c", "end": True}))
    said = command("logs", "task-1", "--first-error")
    assert (said.out, said.err) == ("bad 0\nbad 1\nbad 2\n", "rank 3, attempt 2, byte 40:\n")
    assert api.list_requests("GET", f"{TASK}/logs/first-error")[0].query == {"rank": "all"}
    assert api.list_requests("GET", f"{TASK}/logs")[0].query == {"rank": "3", "attempt": "2", "cursor": "2@3:40"}
    assert json.loads(command("logs", "task-1", "--first-error", "--rank", "3", "-o", "json").out) == answer


def test_without_an_error_the_unread_parts_are_named(api: FakeApi, command: Command) -> None:
    answer = {"attempt": 2, "found": None, "complete": False, "windowBytes": 65536, "ranksUnread": 7}
    api.on("GET", f"{TASK}/logs/first-error", data(answer))
    said = command("logs", "task-1", "--first-error")
    assert said.out == ""
    incomplete, none = said.err.splitlines()
    assert "64 KiB" in incomplete
    assert incomplete.endswith("7.")
    assert none == "No line is marked as an error."


HOSTILE = "\x1b]0;owned\x07\x1b[2J10%\r20%\x9b31m\x7f\tok é 汉"
SHOWN = "\\x1b]0;owned\\x07\\x1b[2J10%\\r20%\\x9b31m\\x7f\tok é 汉"


def test_control_characters_of_a_rank_are_left_out_unless_raw(api: FakeApi, command: Command) -> None:
    lines = [{"rank": 0, "offset": 0, "text": HOSTILE}]
    api.on("GET", f"{TASK}/logs", data({"rank": 0, "attempt": 1, "lines": lines, "cursor": "c", "end": True}))
    assert command("logs", "task-1").out == "10%20%31m\tok é 汉\n"
    assert command("logs", "task-1", "--raw").out == f"{HOSTILE}\n"
    for form in ("json", "yaml"):
        said = command("logs", "task-1", "-o", form).out
        assert not set(said) & {"\x1b", "\x07", "\r", "\x9b", "\x7f"}
        found = yaml.safe_load(said)
        assert (found if form == "json" else found[0])["text"] == HOSTILE


def test_colours_reach_a_terminal_and_nothing_else_that_it_obeys(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        {
            "rank": 0,
            "offset": 0,
            "text": "\x1b]52;c;QQ==\x07\x1b[31mred\x1b[39m\x1b[2J \x1b[1mbold",
            "level": "warning",
        },
        {"rank": 0, "offset": 40, "text": "no colours of its own", "level": "error"},
    ]
    api.on("GET", f"{TASK}/logs", data({"rank": 0, "attempt": 1, "lines": lines, "cursor": "c", "end": True}))
    assert command("logs", "task-1").out == "red bold\nno colours of its own\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    first, second = command("logs", "task-1").out.splitlines()
    assert first == "\x1b[31mred\x1b[39m \x1b[1mbold\x1b[0m"
    assert second == "\x1b[31mno colours of its own\x1b[0m"


def bars(api: FakeApi) -> None:
    """Two ranks with a bar each, page after page, until both have ended."""

    def reply(*lines: tuple[int, str, bool]) -> Reply:
        items = [{"rank": rank, "offset": 0, "text": text, **({"open": True} if is_open else {})}
                 for rank, text, is_open in lines]  # fmt: skip
        return data({"rank": "all", "attempt": 1, "lines": items, "cursor": f"c{next(numbers)}", "end": True})

    numbers = iter(range(9))
    ended = task(endedAt="2026-11-21T00:00:00Z", attempt=1)
    api.on("GET", TASK, *[data(task(endedAt=None, attempt=1))] * 5, data(ended))
    api.on(
        "GET", f"{TASK}/logs",
        reply((0, "begin", False), (0, "0: 1%", True), (1, "1: \x1b[31m1%", True)),
        reply((0, "0: 2%", True)),
        reply((1, "1: 100%", False), (1, "1: end", False)),
        reply((0, "", True)),
        reply((0, "0: 9%" + "9" * 100, True)),
        reply((0, "0: 100%", False)),
    )  # fmt: skip


def screen(written: str, columns: int = 80) -> list[list[str]]:
    """Returns what a terminal shows, each time that it was written to: as far as its codes are known here."""
    rows, row, column, shown = [""], 0, 0, []
    for part in re.findall(r"\x1b\[\d*[AJ]|\r|\n|[^\x1b\r\n]+", re.sub(r"\x1b\[\d*m", "", written)):
        if part == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif part == "\r":
            column = 0
        elif part.endswith("A"):
            row -= int(part[2:-1])
        elif part.startswith("\x1b"):
            rows[row:] = [rows[row][:column]]
        else:
            rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
            column += len(part)
            assert column < columns, "it would wrap"
        shown.append([*rows])
    return shown


def test_in_a_terminal_progress_bars_stay_at_the_bottom(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    bars(api)
    seen = screen(command("logs", "task-1", "--rank", "all", "--follow").out)
    for state in (
        ["[0] begin", "[0] 0: 1%", "[1] 1: 1%"],
        ["[0] begin", "[0] 0: 2%", "[1] 1: 1%"],
        ["[0] begin", "[1] 1: 100%", "[0] 0: 2%"],
        ["[0] begin", "[1] 1: 100%", "[1] 1: end", "[0] 0: 2%"],
        ["[0] begin", "[1] 1: 100%", "[1] 1: end", ""],
        ["[0] begin", "[1] 1: 100%", "[1] 1: end", f"[0] 0: 9%{'9' * 70}"],
    ):
        assert state in seen
        seen = seen[seen.index(state) :]
    assert seen[-1] == ["[0] begin", "[1] 1: 100%", "[1] 1: end", "[0] 0: 100%", ""]


def test_bars_of_one_rank_are_redrawn_below_each_other(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    pages = [("epochs 1/2\nsteps \x1b[31m3/9", True), ("epochs 1/2\nsteps 4/9", True), ("epochs 2/2", False)]
    ended = task(endedAt="2026-11-21T00:00:00Z", attempt=1)
    api.on("GET", TASK, *[data(task(endedAt=None, attempt=1))] * (len(pages) - 1), data(ended))
    replies = [
        data({"rank": "0", "attempt": 1, "cursor": f"c{at}", "end": True,
              "lines": [{"offset": at, "text": text, **({"open": True} if is_open else {})}]})
        for at, (text, is_open) in enumerate(pages)
    ]  # fmt: skip
    api.on("GET", f"{TASK}/logs", *replies)
    seen = screen(command("logs", "task-1", "--follow").out)
    assert ["epochs 1/2", "steps 3/9"] in seen
    assert ["epochs 1/2", "steps 4/9"] in seen
    assert seen[-1] == ["epochs 2/2", ""]


def test_without_a_terminal_each_state_of_a_bar_is_a_line(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.001)
    bars(api)
    said = command("logs", "task-1", "--rank", "all", "--follow").out.splitlines()
    assert said[:3] == ["[0] begin", "[0] 0: 1%", "[1] 1: 1%"]
    assert said[3:] == ["[0] 0: 2%", "[1] 1: 100%", "[1] 1: end", f"[0] 0: 9%{'9' * 100}", "[0] 0: 100%"]
    open_line = {"rank": 0, "offset": 7, "text": " 3%", "open": True}
    api.on("GET", f"{TASK}/logs", data({"rank": "0", "attempt": 1, "lines": [open_line], "cursor": "c", "end": True}))
    assert command("logs", "task-1").out == " 3%\n"
    told = json.loads(command("logs", "task-1", "-o", "json").out)
    assert told == {"attempt": 1, **open_line}


def test_control_characters_in_names_and_messages_are_escaped(api: FakeApi, command: Command) -> None:
    api.on("GET", "/training-tasks", page([brief(taskName=HOSTILE)]))
    assert SHOWN.partition("\t")[0] in command("list").out
    api.on("GET", TASK, refused(409, "BAD", ("taskName", "BAD", HOSTILE, HOSTILE)))
    said = command("get", "task-1").err
    assert said.count(SHOWN) == 2
    assert "\x1b" not in said


def test_a_clone_can_be_submitted(api: FakeApi, command: Command, tmp_path: Path) -> None:
    wanted = {
        "taskName": "t",
        "datasetId": "dataset-001",
        "datasetVersionId": "version-001",
        "modelId": "model-001",
        "launchMode": "existing",
        "environmentIds": ["env-001"],
        "hyperparameters": {"learningRate": 1e-4},
    }
    api.on("POST", f"{TASK}/clone", data({"request": wanted}))
    api.on("GET", "/dev-environments", page([environment(1, "a")]))
    api.on("GET", "/datasets", page([dataset(1, "stdlib", version(1))]))
    api.on("GET", "/models", page([model(1, "gpt")]))
    api.on("POST", "/training-tasks", data(CREATED, 201))
    (tmp_path / "task.yaml").write_text(command("clone", "task-1").out)
    assert command("submit", "-f", "task.yaml", "--name", "again").code == 0
    assert api.list_requests("POST", "/training-tasks")[0].body == {**wanted, "taskName": "again"}


def code_source(**more: Any) -> dict[str, Any]:
    return {"snapshotId": "8c1c" * 16, "kind": "environment", "environment": "gpu-a", "path": "mine", "url": "",
            "revision": "", "changed": False, "why": None, **more}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "flags", "body", "said"),
    [
        (data(code_source(changed=True)), [], {"code": "current"}, "fetched again from gpu-a:mine"),
        (data(code_source(changed=True)), ["--same-code"], {"code": "snapshot"}, ""),
        (data(code_source()), [], {"code": "snapshot"}, ""),
        (data(code_source()), ["--current-code"], {"code": "current"}, ""),
        (data(code_source(kind="upload", changed=None)), [], {"code": "snapshot"}, "fermi retry task-1 --code FOLDER"),
        (data(code_source(changed=None, why={"code": "X", "message": "gpu-a is stopped.", "hint": ""})), [],
         {"code": "snapshot"}, "gpu-a is stopped. Snapshot 8c1c8c1c8c1c is run again."),
        (data(code_source(kind="node", snapshotId=None, changed=None)), [], {"code": "snapshot"}, ""),
        (refused(404, "NO_SUCH_ADDRESS"), [], {"code": "auto"}, ""),
    ],
)  # fmt: skip
def test_a_retry_shows_which_code_it_runs(
    api: FakeApi, command: Command, found: Reply, flags: list[str], body: dict[str, str], said: str
) -> None:
    api.on("GET", f"{TASK}/code/source", found)
    api.on("POST", f"{TASK}/retry", data(CREATED, 201))
    done = command("retry", "task-1", *flags)
    assert done.code == 0, done.err
    assert api.list_requests("POST", f"{TASK}/retry")[0].body == body
    assert said in " ".join(done.err.split())
    assert bool(said) == bool(done.err)


def test_a_retry_accepts_one_code_option(api: FakeApi, command: Command) -> None:
    done = command("retry", "task-1", "--same-code", "--code", ".")
    assert done.code == 2
    assert "--current-code" in done.err
    assert api.requests == []


# Submit and preview ---------------------------------------------------------------------------------------------------


@pytest.fixture
def catalogue(api: FakeApi) -> FakeApi:
    api.on("GET", "/dev-environments", page([environment(1, "a"), environment(3, "b")]))
    api.on("GET", "/datasets", page([dataset(1, "stdlib", version(1))]))
    api.on("GET", "/models", page([model(1, "gpt")]))
    api.on("POST", "/training-tasks", data(CREATED, 201))
    return api


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"taskName": "t", // why\n "launchMode": "existing"}', "Line 1"),
        ('{\n  "taskName": "t" /* why */\n}', "Line 2"),
    ],
)
def test_a_comment_in_a_json_file_is_named(
    text: str, place: str, catalogue: FakeApi, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "task.json").write_text(text)
    result = command("submit", "-f", "task.json")
    assert result.code == 2
    assert place in result.err
    assert "why" in result.err


def test_submitting_shows_choices_and_warnings(catalogue: FakeApi, command: Command) -> None:
    result = command("submit", "--name", "t", "--env", "a", "--env", "b", "-o", "json")
    assert json.loads(result.out) == CREATED
    for word in ("env-001", "dataset-001:version-001", "model-001", "CROSS_ZONE", "expect slower steps"):
        assert word in result.err


def test_a_refused_request_shows_every_problem_with_advice(catalogue: FakeApi, command: Command) -> None:
    catalogue.on("POST", "/training-tasks", refused(400, "INVALID_REQUEST", *PROBLEMS))
    result = command("submit", "--env", "a")
    assert (result.code, result.out) == (2, "")
    for word in ("distributedConfig.masterNode", "MASTER_REQUIRED", "choose one of them", "NAME_REQUIRED"):
        assert word in result.err


def test_a_preview_shows_ranks_files_and_problems_and_creates_nothing(catalogue: FakeApi, command: Command) -> None:
    ranks = [
        {"rank": n, "localRank": n, "nodeRank": 0, "environmentId": "env-001", "environmentName": "a", "device": None,
         "env": {"RANK": str(n), "WORLD_SIZE": "2"}}
        for n in range(2)
    ]  # fmt: skip
    found = {
        "worldSize": 2, "nodeCount": 1, "masterNode": "env-001", "ranks": ranks, "summary": {}, "warnings": [],
        "files": [{"name": "node.json", "content": "[red]{}\n"}], "command": ["python", "train.py"],
        "artifacts": [{"kind": "process table", "name": "task-0", "content": "table"}], "problems": [],
        "environments": [{"environmentId": "env-001", "name": "a", "runsIn": HOLDS},
                         {"environmentId": "env-002", "name": "b", "runsIn": None}],
        "proposal": {"strategy": {}, "options": {"sharding": "hybrid"},
                     "reasons": [{"code": "PROPOSED_HYBRID_SHARD", "message": "the zones differ", "hint": ""}]},
        "batch": {"perRank": 8, "dataParallel": 2, "accumulation": 4, "effective": 64, "learningRate": 0.01,
                  "learningRateScaling": "linear", "scaledLearningRate": 0.02, "ownScript": True},
    }  # fmt: skip
    catalogue.on("POST", "/training-tasks/preview", data(found))
    result = command("preview", "--env", "a")
    assert result.code == 0
    assert rows_of(result.out, "Where the ranks run")[0] == "a env-001 inside the environment it holds the eight"
    for word in (
        "sharding=hybrid",
        "the zones differ",
        "64 = 8 × 2 × 4 (as passed to the script)",
        "0.02 (0.01, linear)",
        "WORLD_SIZE=2",
        "python train.py",
        "node.json",
        "[red]{}",
        "process table task-0",
        "2 processes",
    ):
        assert word in result.out
    problem = dict(zip(("field", "error", "message", "hint"), PROBLEMS[0], strict=True))
    catalogue.on("POST", "/training-tasks/preview", data({**found, "problems": [problem]}))
    result = command("preview", "--env", "a")
    assert result.code == 2
    assert "MASTER_REQUIRED" in result.err
    assert json.loads(command("preview", "--env", "a", "-o", "json").out)["problems"] == [problem]
    assert not catalogue.list_requests("POST", "/training-tasks")


REASON = {"code": "RECOMMENDED_BY_SIZE", "message": "the size for it", "hint": ""}
ADVICE = {
    "modelParameters": 7 * 10**9,
    "items": [
        {"framework": "pytorch-fsdp", "label": "PyTorch FSDP", "strategy": {"dataParallel": 4},
         "options": {"sharding": "hybrid"}, "reasons": [REASON]},
    ],
    "rejected": [{"framework": "pytorch-ddp", "label": "PyTorch DDP", "reasons": [{**REASON, "message": "too big"}]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("size", "parameters"), [("7B", 7 * 10**9), ("350m", 350 * 10**6), ("1.5T", 15 * 10**11), ("42", 42)]
)
def test_a_framework_is_recommended_for_a_size(
    catalogue: FakeApi, command: Command, size: str, parameters: int
) -> None:
    catalogue.on("POST", "/frameworks/recommend", data(ADVICE))
    result = command("recommend", "--parameters", size, "--env", "a", "--master", "a")
    assert result.code == 0
    for word in ("PyTorch FSDP (pytorch-fsdp)", "dataParallel=4 sharding=hybrid", "the size for it", "too big"):
        assert word in result.out
    [asked] = catalogue.list_requests("POST", "/frameworks/recommend")
    assert asked.body == {"modelParameters": parameters, "environmentIds": ["env-001"], "masterNode": "env-001"}


def test_a_framework_is_recommended_for_a_model_and_an_invalid_size_is_bad_usage(
    catalogue: FakeApi, command: Command
) -> None:
    catalogue.on("POST", "/frameworks/recommend", data(ADVICE))
    assert json.loads(command("recommend", "--model", "model-001", "--env", "a", "-o", "json").out) == ADVICE
    assert catalogue.list_requests("POST", "/frameworks/recommend")[0].body["modelId"] == "model-001"
    wrong = command("recommend", "--parameters", "big", "--env", "a")
    assert (wrong.code, "7B" in wrong.err) == (2, True)


SCENE = {"name": "Large training", "feature": "Data parallel", "frameworks": [{"label": "PyTorch DDP"}], "fits": True}


def test_a_recommendation_shows_the_matching_row_of_the_scenario_table(catalogue: FakeApi, command: Command) -> None:
    catalogue.on("POST", "/frameworks/recommend", data({**ADVICE, "scenes": [SCENE, {**SCENE, "fits": False}]}))
    said = command("recommend", "--parameters", "7B", "--env", "a").out
    assert "Large training (PyTorch DDP, Data parallel)" in said


def _variant(*missing: str) -> dict[str, Any]:
    config = {"nodeIds": ["env-001"], "masterNode": "env-001", "framework": "pytorch-fsdp"}
    request = {"taskName": "llama2-7b", "distributedConfig": config, "hyperparameters": {"layers": 32}}
    texts = [{"code": "X", "message": one, "hint": "add some"} for one in missing]
    return {"request": request, "missing": texts, "frameworkLabel": "PyTorch FSDP"}


TEMPLATE = {
    "id": "llama2-7b", "title": "Fine-tuning LLaMA2", "need": "Fine-tune", "setting": "1 node", "advantages": ["fast"],
    "notes": ["a note"], "full": _variant("one is missing"), "small": _variant(),
}  # fmt: skip


def test_use_cases_are_listed_with_their_submit_command(catalogue: FakeApi, command: Command) -> None:
    catalogue.on("GET", "/task-templates", data({"items": [TEMPLATE], "total": 1, "page": 1, "pageSize": 1}))
    said = command("templates").out
    for words in (
        "Fine-tuning LLaMA2 (llama2-7b)",
        "fermi submit --template llama2-7b --small: env-001",
        "one is miss",
    ):
        assert words in said


def test_a_use_case_is_submitted_with_or_without_changes(catalogue: FakeApi, command: Command) -> None:
    catalogue.on("GET", "/task-templates/llama2-7b", data(TEMPLATE))
    result = command("submit", "--template", "llama2-7b", "--hp", "layers=2")
    assert (result.code, "one is missing" in result.err) == (0, True)
    command("submit", "--template", "llama2-7b", "--small", "--env", "b", "--name", "mine")
    first, second = (one.body for one in catalogue.list_requests("POST", "/training-tasks"))
    assert (first["distributedConfig"]["nodeIds"], first["hyperparameters"]) == (["env-001"], {"layers": 2})
    assert (second["taskName"], second["distributedConfig"]["masterNode"]) == ("mine", "env-003")
    assert command("submit", "--small", "--env", "a").code == 2


@pytest.mark.parametrize(("status", "code"), [("succeeded", 0), ("failed", 1), ("stopped", 1)])
def test_waiting_ends_with_the_task_and_shows_its_end(
    catalogue: FakeApi, command: Command, status: str, code: int
) -> None:
    catalogue.on("GET", TASK, data(task()), data(task(status)))
    result = command("submit", "--env", "a", "--name", "t", "--wait", "-o", "json")
    assert (result.code, json.loads(result.out)["status"]) == (code, status)


def test_following_without_a_terminal_prints_lines(catalogue: FakeApi, command: Command) -> None:
    point = {"attempt": 2, "rank": 0, "step": 700, "at": "", "values": {"loss": 1.25, "tokens_per_s": 51234.4}}
    last = brief("succeeded", attempt=2, step=700, loss=1.25)
    restart = {"id": 1, "attempt": 1, "at": "", "kind": "state", "code": "RANK_KILLED", "message": "rank 1 was killed"}
    catalogue.on(
        "GET",
        f"{TASK}/stream",
        stream(event("event", restart, "1"), event("status", brief("queued", attempt=2), "2"), cut=True),
        DROP,
        stream(event("metric", {"items": [point]}, "3"), event("status", last, "4"), event("end", {}, "5")),
    )
    catalogue.on("GET", TASK, data(task()), data(task("succeeded")))
    result = command("submit", "--env", "a", "--name", "t", "--follow", "-o", "json")
    assert (result.code, json.loads(result.out)["status"]) == (0, "succeeded")
    assert "- rank 1 was killed" in result.err
    assert "queued  10/1000  loss 2.5000  1 restart" in result.err
    assert "succeeded  700/1000  loss 1.2500  51,234 tokens/s  1 restart" in result.err
    assert [request.headers.get("Last-Event-ID") for request in catalogue.list_requests("GET", f"{TASK}/stream")] == [
        None,
        "2",
        "2",
    ]


# Deleting -------------------------------------------------------------------------------------------------------------


def test_deleting_asks_for_confirmation(api: FakeApi, command: Command) -> None:
    api.on("DELETE", TASK, data(None))
    assert command("delete", "task-1").code == 2
    assert not api.requests
    assert command("delete", "task-1", "--yes").code == 0
    assert len(api.list_requests("DELETE", TASK)) == 1


# Exit codes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (401, "NOT_AUTHENTICATED", 3),
        (403, "FORBIDDEN", 3),
        (404, "NOT_FOUND", 4),
        (409, "TASK_FINAL", 2),
        (500, "X", 5),
    ],
)
def test_an_error_has_an_exit_code_and_no_standard_output(
    api: FakeApi, command: Command, status: int, error: str, code: int
) -> None:
    api.on("POST", f"{TASK}/stop", refused(status, error, ("", error, "text", "the advice")))
    result = command("stop", "task-1")
    assert (result.code, result.out) == (code, "")
    assert f"refused: {error}" in result.err
    assert ("the advice" in result.err) == (code != 3 or status == 403)


def test_an_unreachable_platform_is_exit_code_5(api: FakeApi, command: Command) -> None:
    api.on("GET", "/auth/me", DROP)
    result = command("whoami")
    assert result.code == 5
    assert api.url in result.err


def test_a_missing_platform_is_exit_code_5_with_advice(command: Command) -> None:
    result = command("whoami")
    assert result.code == 5
    assert "fermi login" in result.err


@pytest.mark.parametrize("arguments", [["nothing"], ["list", "--nothing"], ["get"], ["submit", "-f", "nowhere.yaml"]])
def test_bad_usage_is_exit_code_2(api: FakeApi, command: Command, arguments: list[str]) -> None:
    result = command(*arguments) if len(arguments) > 1 else command(arguments[0])
    assert result.code == 2
    assert result.err


# Signing in -----------------------------------------------------------------------------------------------------------


def test_a_sign_in_is_stored_with_mode_600(api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FERMI_URL")
    monkeypatch.delenv("FERMI_TOKEN")
    api.on("GET", "/auth/me", data(ME))
    assert command("login", api.url + "/", "--token", "mine").code == 0
    assert config.load_config() == config.Config(api.url, "mine", "en")
    assert stat.S_IMODE(config.get_config_path().stat().st_mode) == 0o600
    assert command("whoami").code == 0
    assert {request.headers["Authorization"] for request in api.requests} == {"Bearer mine"}


def test_a_refused_token_is_not_stored(api: FakeApi, command: Command) -> None:
    api.on("GET", "/auth/me", refused(401, "TOKEN_INVALID", ("", "TOKEN_INVALID", "text", "")))
    assert command("login", "--token", "wrong").code == 3
    assert not config.get_config_path().exists()


SIGN_IN = "/_allauth/browser/v1/auth"


def login_answers(api: FakeApi, *answers: Reply) -> None:
    cookie = {"Set-Cookie": "csrftoken=c5rf; Path=/"}
    api.on("GET", f"{SIGN_IN}/session", Reply({}, 401, cookie))
    api.on("POST", f"{SIGN_IN}/login", *answers)
    api.on("DELETE", f"{SIGN_IN}/session", Reply({}, 401))


def test_a_password_becomes_a_token(api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    login_answers(api, Reply({"status": 200}))
    api.on("POST", "/tokens", data({"id": "1", "token": "made"}, 201))
    api.on("GET", "/auth/me", data(ME))
    assert command("login", "--username", "admin").code == 0
    assert config.load_config().token == "made"
    [login] = api.list_requests("POST", f"{SIGN_IN}/login")
    assert login.body == {"username": "admin", "password": "correct horse"}
    assert login.headers["X-CSRFToken"] == "c5rf"
    assert len(api.list_requests("DELETE", f"{SIGN_IN}/session")) == 1


BANNER = {"title": "Authorised use only", "text": "All is recorded.", "required": False, "version": 3}


def test_the_notice_of_a_platform_is_shown_before_the_password(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    login_answers(api, Reply({"status": 200}))
    api.on("GET", "/auth/banner", data(BANNER))
    api.on("POST", "/tokens", data({"id": "1", "token": "made"}, 201))
    api.on("GET", "/auth/me", data(ME))
    done = command("login", "--username", "admin")
    assert done.code == 0
    assert "Authorised use only" in done.err
    assert "All is recorded." in done.err


def test_a_notice_that_must_be_accepted_is_not_accepted_by_a_script(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    login_answers(api, Reply({"status": 200}))
    api.on("GET", "/auth/banner", data({**BANNER, "required": True}))
    assert command("login", "--username", "admin").code == 2
    assert api.list_requests("POST", f"{SIGN_IN}/login") == []


def test_an_accepted_notice_is_sent_before_the_token_is_made(api: FakeApi) -> None:
    login_answers(api, Reply({"status": 200}))
    api.on("POST", "/auth/banner/accept", data(None))
    api.on("POST", "/tokens", data({"id": "1", "token": "made"}, 201))
    assert issue_token(api.url, "admin", "correct horse", "here", accepted_banner=3) == "made"
    [accept] = api.list_requests("POST", "/auth/banner/accept")
    assert accept.body == {"version": 3}


@pytest.mark.parametrize(
    ("status", "body", "code", "word"),
    [
        (400, {"errors": [{"message": "wrong password", "code": "x"}]}, 3, "wrong password"),
        (400, {"errors": [{"message": "passwords are off", "code": "local_accounts_off"}]}, 3, "--device"),
        (401, {"data": {"flows": [{"id": "login"}, {"id": "mfa_authenticate", "is_pending": True}]}}, 2, "--token"),
        (429, {}, 3, "HTTP 429"),
    ],
)
def test_a_failed_sign_in_stores_nothing(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch, status: int, body: object, code: int, word: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    login_answers(api, Reply(body, status))
    result = command("login", "--username", "admin")
    assert result.code == code
    assert word in result.err
    assert not config.get_config_path().exists()


def test_messages_are_requested_in_the_chosen_language(api: FakeApi, command: Command) -> None:
    def answer(request: Request):
        return refused(404, request.headers["Accept-Language"])

    api.on("GET", TASK, answer)
    assert "zh" in command("get", "task-1", lang="zh").err
    assert "en" in command("get", "task-1", lang="en").err


# As a process ---------------------------------------------------------------------------------------------------------


def test_the_overview_imports_neither_http_nor_terminal_libraries() -> None:
    program = (
        "import sys; from fermi.cli.main import run_command; run_command(['--help']); "
        "sys.exit(', '.join({'httpx', 'rich', 'yaml'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(PLATFORM)}
    answer = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert answer.stderr.strip() == ""
    assert "submit" in answer.stdout


def test_help_is_in_the_chosen_language() -> None:
    assert "训练任务" in shell("--help", LANG="zh_CN.UTF-8").stdout
    assert "Training tasks" in shell("list", "--help", "--lang", "en").stdout
    assert "训练任务" in shell("list", "--help", "--lang", "zh").stdout


@pytest.mark.parametrize("arguments", [["get", "task-1", "--follow"], ["get", "task-1", "--wait"]])
def test_ctrl_c_leaves_the_task_running_and_shows_how_to_continue(api: FakeApi, arguments: list[str]) -> None:
    asked, leave = threading.Event(), threading.Event()

    def hold(request: Request):
        asked.set()
        leave.wait(60)
        return data(task())

    api.on("GET", TASK, data(task()), hold)
    api.on("GET", f"{TASK}/stream", hold)
    env = {**os.environ, "PYTHONPATH": str(PLATFORM), "LANG": "en_US.UTF-8"}
    with as_in_a_terminal():
        process = subprocess.Popen(
            [sys.executable, "-m", "fermi.cli", *arguments],
            env=env,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    try:
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        leave.set()
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert "fermi stop task-1" in err
    assert "Traceback" not in err
    assert not [request for request in api.requests if request.method != "GET"]


def test_a_broken_pipe_is_no_error(api: FakeApi) -> None:
    lines = [{"offset": n, "text": "x" * 1000} for n in range(2000)]
    api.on("GET", f"{TASK}/logs", data({"rank": 0, "attempt": 1, "lines": lines, "cursor": "c", "end": True}))
    env = {**os.environ, "PYTHONPATH": str(PLATFORM)}
    process = subprocess.Popen(
        [sys.executable, "-m", "fermi.cli", "logs", "task-1"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert process.stderr
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


# Clusters -------------------------------------------------------------------------------------------------------------

CLUSTERS = [{"id": "cluster-1", "name": "lab", "backend": "kubernetes", "connection": None}]


def test_a_cluster_check_shows_problems_with_remedies(api: FakeApi, command: Command) -> None:
    rule = "- apiGroups: [batch]\n  resources: [jobs]\n"
    findings = [
        {"level": "pass", "code": "KUBERNETES_REACHABLE", "message": "it answers", "hint": "", "remedy": ""},
        {
            "level": "fail",
            "code": "PERMISSION_MISSING",
            "message": "create jobs",
            "hint": "Add this",
            "remedy": rule,
        },
    ]
    api.on("GET", "/clusters", page(CLUSTERS))
    api.on("POST", "/clusters/cluster-1/check", data({"fit": False, "findings": findings}))
    result = command("clusters", "check", "lab")
    assert result.code == 1
    table, advice = result.out.split("\n\n")
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [
        ["pass", "KUBERNETES_REACHABLE"],
        ["fail", "PERMISSION_MISSING"],
    ]
    assert advice.splitlines() == ["create jobs", "Add this", *rule.splitlines()]


def test_clusters_are_listed(api: FakeApi, command: Command) -> None:
    api.on("GET", "/clusters", page(CLUSTERS))
    result = command("clusters")
    assert (result.code, result.out.splitlines()[1].split()) == (0, ["cluster-1", "lab", "kubernetes"])


# Pre-flight tests -----------------------------------------------------------------------------------------------------


def ended(level: str) -> dict:
    """Of two nodes, as the API shows it."""
    culprit = {"environmentIds": ["env-2"], "code": "X", "message": "env two is slow", "hint": "leave it out"}
    nodes = [{"environmentId": f"env-{n}", "name": f"node {n}", "level": "pass", "findings": []} for n in (1, 2)]
    way = {"level": level, "rttMs": 0.2, "bandwidthMbps": 9400.0, "interface": "eth0", "findings": []}
    verdict = {"level": level, "message": "so it is", "culprits": [culprit] if level != "pass" else []}
    return {
        "id": "preflight-1", "status": "done", "reason": None, "nodes": nodes, "together": None,
        "pairs": [{"from": "env-1", "to": "env-2", **way}, {"from": "env-2", "to": "env-1", **way}], "verdict": verdict,
    }  # fmt: skip


@pytest.mark.parametrize(("level", "code"), [("pass", 0), ("warn", 0), ("fail", 1)])
def test_a_preflight_test_is_started_followed_and_shown(api: FakeApi, command: Command, level: str, code: int) -> None:
    api.on("GET", "/dev-environments", page([environment(1, "one"), environment(2, "two")]))
    api.on("POST", "/preflights", data({"id": "preflight-1", "status": "queued"}))
    api.on("GET", "/preflights/preflight-1", data(ended(level)))
    result = command("preflight", "one", "env-002", "--full", "--master", "two")
    assert result.code == code
    [asked] = [request for request in api.requests if request.method == "POST"]
    assert asked.body == {"environmentIds": ["env-001", "env-002"], "level": "full", "masterNode": "env-002"}
    assert "9.4 Gbit/s" in result.out
    assert ("env two is slow" in result.out) == (level != "pass")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nnodes", "2"], "--node-rank"),
        (["--nnodes", "2", "--node-rank", "2", "--master-addr", "gn6"], "must be below"),
    ],
)
def test_an_invalid_placement_by_hand_is_refused(command: Command, arguments: list[str], said: str) -> None:
    result = command("preflight", *arguments)
    assert result.code == 2
    assert said in result.err


def test_a_login_link_is_made_only_on_the_platforms_machine(command, empty_home):
    done = command("login-link", "--data", str(empty_home / "nothing"))
    assert (done.code, done.out) == (5, "")
    assert str(empty_home / "nothing") in done.err
    assert "--data" in done.err


# Options before and after the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_connection_language_and_format_may_precede_or_follow_the_command(
    api: FakeApi, before: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api.on("GET", "/training-tasks", page([brief()]))
    monkeypatch.setenv("FERMI_URL", "http://127.0.0.1:9")
    options = ["--url", api.url, "--lang", "en", "-o", "json"]
    code = run_command([*options, "list"] if before else ["list", *options])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert json.loads(out)["total"] == 1


def test_options_after_the_command_win(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.on("GET", "/training-tasks", page([brief()]))
    assert run_command(["--url", "http://127.0.0.1:9", "-o", "yaml", "list", "--url", api.url, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_accepts_connection_options_before_it(name: str) -> None:
    assert run_command(["--url", "http://127.0.0.1:9", "--lang", "en", name, "--help"]) == 0


# Secrets --------------------------------------------------------------------------------------------------------------

WANDB = {"name": "wandb", "createdAt": "2026-11-22T00:00:00Z", "createdBy": "owner",
         "updatedAt": "2026-11-22T00:00:00Z", "updatedBy": "owner"}  # fmt: skip
SECRETS = "/projects/project-1/secrets"


def test_a_secret_comes_from_standard_input_and_is_never_shown(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("GET", "/projects", page([{"id": "project-1", "name": "默认", "role": "maintainer"}]))
    api.on("PUT", f"{SECRETS}/wandb", data(WANDB))
    monkeypatch.setattr(sys, "stdin", io.StringIO("sesame open\n"))
    result = command("secrets", "set", "wandb")
    assert (result.code, api.list_requests("PUT", f"{SECRETS}/wandb")[0].body) == (0, {"value": "sesame open"})
    assert "wandb" in result.out
    assert "sesame" not in result.out + result.err
    assert command("secrets", "set", "wandb", "sesame").code == 2, "an argument would be seen by everybody here"
    assert command("secrets", "set").code == 2


def test_secrets_are_listed_and_removed_by_name(api: FakeApi, command: Command) -> None:
    api.on("GET", "/projects", page([{"id": "project-1", "name": "nlp", "role": "maintainer"},
                                     {"id": "project-2", "name": "vision", "role": "viewer"}]))  # fmt: skip
    api.on("GET", SECRETS, page([WANDB]))
    api.on("DELETE", f"{SECRETS}/wandb", data(None))
    assert command("secrets").code == 2, "which of two projects?"
    assert command("secrets", "--project", "nlp").out.splitlines()[1].split()[0] == "wandb"
    assert json.loads(command("secrets", "--project", "nlp", "-o", "json").out) == {"items": [WANDB], "total": 1}
    assert "Deleted wandb." in command("secrets", "remove", "wandb", "--project", "nlp").err


CACHE = {"sizeBytes": 3 << 30, "maxBytes": 2 << 30, "excessBytes": 1 << 30, "units": 2, "complete": False,
         "largest": [{"path": "triton/\x1b[31mK\u202e", "sizeBytes": 2 << 30, "usedAt": "2026-11-01T00:00:00+00:00"}],
         "error": "", "measuredAt": "2026-11-28T00:00:00+00:00", "cleanedAt": None, "freedBytes": 0,
         "mayClean": True}  # fmt: skip


def test_the_library_cache_is_shown_with_escaped_names_and_cleaned(api: FakeApi, command: Command) -> None:
    api.on("GET", "/projects", page([{"id": "project-1", "name": "nlp", "role": "maintainer"}]))
    api.on("GET", "/projects/project-1/cache", data(CACHE))
    api.on("POST", "/projects/project-1/cache/clean", data(CACHE))
    shown = command("cache", "--project", "nlp").out
    assert all(text in shown for text in ("≥ 3 GiB", "2 GiB", "1 GiB", r"triton/\u001b[31mK\u202e"))
    assert "\x1b" not in shown
    assert command("cache", "clean", "--keep", "1.5", "--project", "nlp").code == 0
    assert api.list_requests("POST", "/projects/project-1/cache/clean")[0].body == {"keepBytes": 3 << 29}
    assert command("cache", "clean", "--keep", "-1").code == 2
    api.on("GET", "/projects/project-1/cache", data({**CACHE, "measuredAt": None}))
    assert "half hour" in command("cache", "--project", "nlp").out


# Sharing --------------------------------------------------------------------------------------------------------------

NONE = {"weight": 1, "guaranteedGpus": None, "mostGpus": 16, "mostTasks": None, "gpuHours": None, "gpuTypes": [],
        "zones": [], "priorities": [], "longestRunSeconds": None, "userMostGpus": 4, "userMostTasks": None,
        "userGpuHours": None, "maxEnvironments": None, "maxEnvironmentGpus": None, "userMaxEnvironments": None,
        "userMaxEnvironmentGpus": None, "budget": 500.0, "atBudget": "warn"}  # fmt: skip
LIMITS = {**NONE, "projectId": "project-1", "currency": "CNY", "updatedAt": None, "updatedBy": "", "mayChange": True,
          "use": {"gpus": 6, "sharedGpus": 4, "tasks": 2, "gpuHours": 31.5, "cost": 120.0, "share": 9.0,
                  "environments": 0, "environmentGpus": 0}}  # fmt: skip
ANN = {"username": "ann", "mostGpus": 2, "mostTasks": None, "gpuHours": None, "maxEnvironments": 2,
       "maxEnvironmentGpus": None, "own": True,
       "use": {"gpus": 1, "tasks": 1, "gpuHours": 2.0, "environments": 1, "environmentGpus": 0}}  # fmt: skip


@pytest.fixture
def nlp(api: FakeApi) -> str:
    api.on("GET", "/projects", page([{"id": "project-1", "name": "nlp", "role": "maintainer"}]))
    api.on("GET", "/projects/project-1/limits", data(LIMITS))
    return "/projects/project-1/limits"


def test_limits_are_shown_with_usage_and_changed_one_by_one(api: FakeApi, command: Command, nlp: str) -> None:
    shown = command("limits", "nlp").out
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines()[1:]}
    assert (rows["mostGpus"], rows["guaranteedGpus"]) == (["16", "6"], ["-", "4"])
    assert rows["budget"] == ["500", "120.00", "CNY"]
    api.on("PUT", nlp, data(LIMITS))
    changes = ["mostGpus=32", "budget=none", "gpuTypes=A100, H100", "atBudget=refuse", "gpuHours=1.5"]
    assert command("limits", *(word for one in changes for word in ("--set", one))).code == 0
    assert api.list_requests("PUT", nlp)[0].body == {
        **NONE, "mostGpus": 32, "budget": None, "gpuTypes": ["A100", "H100"], "atBudget": "refuse", "gpuHours": 1.5,
    }  # fmt: skip
    assert command("limits", "--set", "mostGpus").code == 2


def test_limits_of_a_member_are_shown_changed_and_removed(api: FakeApi, command: Command, nlp: str) -> None:
    api.on("GET", f"{nlp}/users", page([ANN, {**ANN, "username": "bo", "own": False}]))
    api.on("PUT", f"{nlp}/users/ann", data(ANN))
    api.on("DELETE", f"{nlp}/users/ann", data(None))
    assert [line.split()[0] for line in command("limits", "--users").out.splitlines()] == ["User", "ann", "bo"]
    assert command("limits", "--user", "ann", "--set", "mostTasks=3").code == 0
    assert api.list_requests("PUT", f"{nlp}/users/ann")[0].body == {
        "mostGpus": 2, "mostTasks": 3, "gpuHours": None, "maxEnvironments": 2, "maxEnvironmentGpus": None,
    }  # fmt: skip
    assert command("limits", "--user", "ann", "--clear").code == 0
    assert api.list_requests("DELETE", f"{nlp}/users/ann")
    assert command("limits", "--clear").code == 2


def test_environments_are_reserved_for_a_project_or_for_maintenance(api: FakeApi, command: Command, nlp: str) -> None:
    made = {"id": "reservation-1", "kind": "maintenance", "projectId": None, "projectName": "", "note": "driver",
            "environments": [{"id": "env-001", "name": "lab"}], "beginsAt": "2026-12-01T08:00:00Z",
            "endsAt": "2026-12-01T10:00:00Z", "createdAt": "2026-11-01T08:00:00Z", "createdBy": "ann",
            "mayChange": True}  # fmt: skip
    api.on("GET", "/dev-environments", page([environment(1, "lab")]))
    api.on("GET", "/reservations", page([made]))
    api.on("POST", "/reservations", data(made, 201))
    api.on("DELETE", "/reservations/reservation-1", data(None))
    times = ("--from", "2026-12-01T08:00+00:00", "--to", "2026-12-01T10:00+00:00")
    assert "maintenance" in command("reservations", "add", "lab", *times, "--note", "driver").out
    assert command("reservations", "add", "lab", *times, "--project", "nlp").code == 0
    maintained, reserved = api.list_requests("POST", "/reservations")
    assert (maintained.body["projectId"], reserved.body["projectId"]) == (None, "project-1")
    assert maintained.body["environmentIds"] == ["env-001"]
    assert datetime.fromisoformat(maintained.body["beginsAt"]) == datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert "lab" in command("reservations").out
    assert "Deleted reservation-1." in command("reservations", "remove", "reservation-1").err
    assert command("reservations", "add", "lab").code == 2
    assert command("reservations", "remove").code == 2
    assert "is not a time" in command("reservations", "--from", "tomorrow").err
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        beyond = command("reservations", "--from", "9999-12-31T23:59")
    time.tzset()
    assert "is not a time" in beyond.err


# The queue ------------------------------------------------------------------------------------------------------------

OUTLOOK = {"reason": {"code": "WAITING_FOR_TURN", "message": "others come first", "hint": "wait"},
           "begins": "2026-11-23T13:00:00Z", "early": "2026-11-23T12:00:00Z", "late": "2026-11-23T15:00:00Z",
           "after": [{"taskId": "task-9", "name": "before", "until": None},
                     {"taskId": None, "name": "", "until": "2026-11-23T12:00:00Z"}]}  # fmt: skip
EXPLAINED = OUTLOOK | {
    "taskId": "task-1", "number": 2, "of": 7, "engine": None,
    "needs": [{"environmentId": "env-001", "name": "a", "held": True, "heldBy": "task-9"}],
    "sooner": [{"code": "SOONER_FEWER_GPUS", "message": "two are free", "hint": "choose 2"}],
}  # fmt: skip


def in_queue(number: int, **changes: Any) -> dict[str, Any]:
    return OUTLOOK | {
        "number": number, "taskId": f"task-{number}", "taskName": "mine", "projectId": "project-1", "owner": "alice",
        "priority": "high", "since": "2026-11-23T10:00:00Z", "preemptible": False, "mayMove": False,
        "asks": {"nodes": 2, "gpus": 4, "gpuTypes": [], "text": "environments: 2, GPUs: 4"},
    } | changes  # fmt: skip


def test_the_queue_hides_names_of_others(api: FakeApi, command: Command) -> None:
    others = in_queue(2, taskId=None, taskName="", projectId=None, owner="", reason=None, begins=None)
    api.on("GET", "/queue", page([in_queue(1), others]))
    _headers, mine, theirs = command("queue").out.splitlines()
    for word in ("mine", "alice", "high", "environments: 2, GPUs: 4", "others come first"):
        assert word in mine
    assert "(a task of another project)" in theirs
    assert "unknown" in theirs
    assert command("queue", lang="zh").out.splitlines()[2].count("其他项目") == 1


def test_the_queue_explains_and_moves_a_task(api: FakeApi, command: Command) -> None:
    api.on("GET", f"{TASK}/queue", data(EXPLAINED))
    api.on("POST", f"{TASK}/move", data(EXPLAINED))
    said = command("queue", "explain", "task-1").out
    for word in ("2 of 7", "others come first", "task-9", "env-001", "two are free", "choose 2", "2026-11-23"):
        assert word in said
    assert command("queue", "move", "task-1", "--before", "task-0").out == said
    command("queue", "move", "task-1")
    assert [one.body for one in api.list_requests("POST", f"{TASK}/move")] == [{"before": "task-0"}, {"before": None}]
    assert "queue move TASK" in command("queue", "move").err


def test_a_waiting_task_shows_its_class_and_position(api: FakeApi, command: Command) -> None:
    api.on("GET", TASK, data(task("queued", priorityClass="high", preemptible=True, paused=False)))
    api.on("GET", f"{TASK}/queue", data(EXPLAINED))
    said = command("get", "task-1").out
    assert "2 of 7" in said
    assert "high (preemptible)" in said
    api.on("GET", "/training-tasks", page([brief("queued", priorityClass="low", paused=True)]))
    listed = command("list").out
    assert "queued (paused)" in listed
    assert "low" in listed


POINT = {
    "step": None, "savedAt": None, "attempt": None, "path": "", "stepsLost": 2101,
    "message": "No checkpoint is known: 2,101 steps will be lost.",
}  # fmt: skip


@pytest.mark.parametrize("action", ["pause", "stop", "resume", "retry", "restart"])
def test_lost_steps_are_shown_before_a_task_is_stopped_or_restarted(
    api: FakeApi, command: Command, action: str
) -> None:
    about = {"taskId": "task-1", "status": "running", "healthy": True, "summary": "", "findings": []}
    api.on("GET", f"{TASK}/diagnosis", data({**about, "resumePoint": POINT}), data(about), refused(500, "INTERNAL"))
    api.on("POST", f"{TASK}/{action}", *[data(task())] * 3)
    first, older, broken = (command(action, "task-1") for _ in range(3))
    assert first.err.startswith(f"task-1: {POINT['message']}\n")
    assert [first.code, older.code, broken.code] == [0, 0, 0]
    assert "checkpoint is known" not in older.err + broken.err


def test_tasks_are_paused_and_resumed(api: FakeApi, command: Command) -> None:
    for action, said in (("pause", "is saving and pausing"), ("resume", "when its turn comes")):
        api.on("POST", f"{TASK}/{action}", data({}))
        result = command(action, "task-1")
        assert (result.code, said in result.err) == (0, True)

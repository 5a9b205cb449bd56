"""The program of a TensorBoard: what it copies from the feed, and what TensorBoard's own reader finds there."""

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fermi.tensorboard import program, start_script

pytestmark = pytest.mark.skipif(find_spec("tensorboard") is None, reason="TensorBoard is not installed")
PART = 7


class FakeFeed(program.Feed):
    """A feed in memory: tasks, their event files, and their points."""

    def __init__(self) -> None:
        self.tasks: dict[str, bool] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.points: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.broken: set[str] = set()

    def read_json(self, address: str, query: dict[str, Any] | None = None) -> Any:
        self.asked.append(address)
        if address == "tasks":
            return {"tasks": [{"id": key, "folder": f"run {key}", "isFinal": end} for key, end in self.tasks.items()]}
        _, task, what = address.split("/")
        if task in self.broken:
            raise OSError("unreachable")
        if what == "files":
            return {"files": [{"path": path, "size": len(data)} for path, data in self.files.get(task, {}).items()]}
        after = (query or {})["after"]
        rest = [point for point in self.points.get(task, []) if point["id"] > after]
        return {"points": rest[:2], "last": max([after, *(one["id"] for one in rest[:2])]), "more": len(rest) > 2}

    def read(self, address: str, query: dict[str, Any] | None = None) -> bytes:
        self.asked.append(address)
        assert query
        return self.files[address.split("/")[1]][query["path"]][query["from"] :][:PART]


def point(number: int, step: int, attempt: int = 1, source: str = "json", **values: float) -> dict[str, Any]:
    return {"id": number, "attempt": attempt, "step": step, "time": 1e9 + number, "source": source, "values": values}


@pytest.fixture
def feed() -> FakeFeed:
    return FakeFeed()


@pytest.fixture
def follower(feed: FakeFeed, tmp_path: Path) -> program.Follower:
    return program.Follower(feed, str(tmp_path))


def read_scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return [(event.step, event.value) for event in read.Scalars(tag)]


def test_a_growing_file_is_copied_part_by_part(feed: FakeFeed, follower: program.Follower, tmp_path: Path) -> None:
    feed.tasks, feed.files = {"a": False}, {"a": {"runs/x/events.out.tfevents.1": b"0123456789"}}
    copy = tmp_path / "run a/runs/x/events.out.tfevents.1"
    follower.copy_once()
    assert copy.read_bytes() == b"0123456789"
    feed.files["a"]["runs/x/events.out.tfevents.1"] += b"abc"
    follower.copy_once()
    assert copy.read_bytes() == b"0123456789abc"
    feed.files["a"]["runs/x/events.out.tfevents.1"] = b"new"
    follower.copy_once()
    assert copy.read_bytes() == b"new", "a shorter file is another one"


def test_stored_points_are_an_event_file(feed: FakeFeed, follower: program.Follower, tmp_path: Path) -> None:
    feed.tasks = {"a": False}
    feed.points = {"a": [point(number, number - 1, loss=1 / number) for number in range(1, 6)]}
    follower.copy_once()
    found = read_scalars(tmp_path / "run a", "loss")
    assert [(step, round(value, 6)) for step, value in found] == [(n - 1, round(1 / n, 6)) for n in range(1, 6)]
    feed.points["a"].append(point(6, 5, loss=0.125, accuracy=0.5))
    follower.copy_once()
    assert read_scalars(tmp_path / "run a", "loss")[-1] == (5, 0.125)
    assert read_scalars(tmp_path / "run a", "accuracy") == [(5, 0.5)]


def test_steps_that_a_restart_repeats_are_shown_once(
    feed: FakeFeed, follower: program.Follower, tmp_path: Path
) -> None:
    feed.tasks = {"a": False}
    feed.points = {"a": [
        point(1, 0, loss=4.0), point(2, 1, loss=3.0), point(3, 2, loss=2.0),
        point(4, 1, attempt=2, loss=2.5), point(5, 2, attempt=2, loss=1.5), point(6, 3, loss=9.0),
    ]}  # fmt: skip
    follower.copy_once()
    assert read_scalars(tmp_path / "run a", "loss") == [(0, 4.0), (1, 2.5), (2, 1.5)]


def test_of_two_sources_of_a_name_one_is_shown(feed: FakeFeed, follower: program.Follower, tmp_path: Path) -> None:
    feed.tasks = {"a": False}
    feed.points = {"a": [point(1, 0, loss=4.0), point(2, 0, source="text", loss=4.1), point(3, 1, loss=3.0)]}
    follower.copy_once()
    assert read_scalars(tmp_path / "run a", "loss") == [(0, 4.0), (1, 3.0)]


def test_event_files_that_come_later_replace_the_points(
    feed: FakeFeed, follower: program.Follower, tmp_path: Path
) -> None:
    feed.tasks, feed.points = {"a": False}, {"a": [point(1, 0, loss=4.0)]}
    follower.copy_once()
    feed.files = {"a": {"events.out.tfevents.1": b"its own"}}
    follower.copy_once()
    assert [file.name for file in (tmp_path / "run a").iterdir()] == ["events.out.tfevents.1"]


def test_a_task_that_has_ended_is_read_to_its_end_and_no_more(feed: FakeFeed, follower: program.Follower) -> None:
    feed.tasks, feed.points = {"a": True}, {"a": [point(number, number, loss=1.0) for number in range(1, 6)]}
    follower.copy_once()
    feed.asked.clear()
    follower.copy_once()
    assert feed.asked == ["tasks"]
    feed.tasks["a"] = False  # it was retried
    follower.copy_once()
    assert "tasks/a/files" in feed.asked


def test_a_deleted_task_is_removed(feed: FakeFeed, follower: program.Follower, tmp_path: Path) -> None:
    feed.tasks, feed.points = {"a": False, "b": False}, {"a": [point(1, 0, loss=1.0)], "b": [point(1, 0, loss=1.0)]}
    follower.copy_once()
    del feed.tasks["a"]
    follower.copy_once()
    assert [folder.name for folder in tmp_path.iterdir()] == ["run b"]


def test_an_error_of_one_task_hides_no_other(feed: FakeFeed, follower: program.Follower, tmp_path: Path) -> None:
    feed.tasks, feed.broken = {"a": False, "b": False}, {"a"}
    feed.points = {"b": [point(1, 0, loss=1.0)]}
    with pytest.raises(OSError, match="unreachable"):
        follower.copy_once()
    assert (tmp_path / "run b").exists()


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a//b", "a/./b", "a\0"])
def test_no_path_leads_out_of_the_folder(path: str) -> None:
    with pytest.raises(ValueError, match=re.escape(path)):
        program.build_path("/there", path)


def call(application: Callable[..., Any], **environ: str) -> tuple[str, bytes]:
    statuses: list[str] = []
    body = application(environ, lambda status, headers: statuses.append(status))
    return (statuses or ["200 OK"])[0], b"".join(body)


def test_only_the_proxy_is_answered() -> None:
    guarded = program.guard(lambda environ, start_response: [b"shown"], "key")
    assert call(guarded, HTTP_X_FERMI_PROXY_KEY="key") == ("200 OK", b"shown")
    for other in ({}, {"HTTP_X_FERMI_PROXY_KEY": "other"}, {"HTTP_X_FERMI_PROXY_KEY": "ключ"}):
        assert call(guarded, **other)[0] == "403 Forbidden"
    keyless = program.guard(lambda environ, start_response: [b"shown"], "")
    assert call(keyless, HTTP_X_FERMI_PROXY_KEY="")[0] == "403 Forbidden"


def test_the_start_script_carries_the_program_and_no_secret() -> None:
    script = start_script.build_start_script()
    assert Path(program.__file__).read_text("utf-8") in script
    assert len(script) < 20_000

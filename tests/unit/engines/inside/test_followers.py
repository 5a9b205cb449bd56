"""The streams by which attempts inside of environments are followed."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from fermi.engines.carried_logs import AttemptFiles
from fermi.engines.inside.followers import EnvironmentEntry, EnvironmentFollowers, NodeInEnvironment, StopRequest
from fermi.engines.inside.session import InsideSession
from fermi.jobs.errors import BackendError
from tests.polling import until


def refusing(code: str, *, permanent: bool) -> Callable[[], InsideSession]:
    def enter() -> InsideSession:
        raise BackendError(code, permanent=permanent)

    return enter


def test_an_attempt_that_never_started_is_over_once_stopped(tmp_path: Path) -> None:
    """An image without Python: nobody can ask in it, and nothing was begun in it."""
    files, changed = AttemptFiles(tmp_path, "task-x", 1), threading.Event()
    followers = EnvironmentFollowers(tmp_path, lambda name: changed.set())
    place = NodeInEnvironment("task-x-1", 0, 0, 2, lambda: None, StopRequest(time.time()))
    followers.ensure(EnvironmentEntry("training/dev", refusing("INSIDE_NO_PYTHON", permanent=True)), place)
    try:
        assert changed.wait(60)
        assert (files.report(0)["left"], files.report(0)["drained"]) == (False, True)
    finally:
        followers.stop()


def test_an_environment_that_may_return_is_waited_for(tmp_path: Path) -> None:
    files, tries = AttemptFiles(tmp_path, "task-x", 1), list[float]()

    def enter() -> InsideSession:
        tries.append(time.monotonic())
        raise BackendError("INSIDE_NOT_RUNNING")

    followers = EnvironmentFollowers(tmp_path, lambda name: None)
    place = NodeInEnvironment("task-x-1", 0, 0, 2, lambda: None, StopRequest(time.time()))
    followers.ensure(EnvironmentEntry("training/dev", enter), place)
    try:
        until(lambda: len(tries) > 2, what="it is tried again")
        assert not files.report(0).get("drained")
    finally:
        followers.stop()


def test_each_attempt_asks_for_its_own_container(tmp_path: Path) -> None:
    """Both are followed by one stream."""
    gone = {"code": "CONTAINER_RESTARTED", "params": {}}
    files, changed = AttemptFiles(tmp_path, "task-x", 1), threading.Event()
    followers = EnvironmentFollowers(tmp_path, lambda name: changed.set() if name == "task-x-1" else None)
    environment = EnvironmentEntry("training/dev", refusing("INSIDE_NOT_RUNNING", permanent=False))
    followers.ensure(environment, NodeInEnvironment("task-x-2", 0, 0, 2, lambda: None))
    followers.ensure(environment, NodeInEnvironment("task-x-1", 0, 0, 2, lambda: gone))
    try:
        assert changed.wait(60)
        assert files.report(0)["gone"] == gone
        assert not AttemptFiles(tmp_path, "task-x", 2).report(0).get("gone")
    finally:
        followers.stop()


class Another:
    """A session with another life of the container, in which nothing of the attempt lives."""

    def __enter__(self) -> "Another":
        return self

    def __exit__(self, *_: object) -> None: ...

    def send(self, *_: object, **__: object) -> None: ...

    def greet_again(self) -> None: ...

    def close(self) -> None: ...

    def messages(self, _: float) -> Iterator[tuple[dict[str, Any], bytes]]:
        yield {"of": "task-x-1", "status": {"state": "exited", "ranks": [], "restarted": True, "left": False}}, b""


def test_an_answer_of_another_container_life_does_not_end_the_wait(tmp_path: Path) -> None:
    """The kubelet tells the API server later than it begins the container again."""
    gone = {"code": "OUT_OF_MEMORY", "params": {}}
    told = iter([None, None])
    files, seen = AttemptFiles(tmp_path, "task-x", 1), list[dict[str, Any]]()
    followers = EnvironmentFollowers(tmp_path, lambda name: seen.append(files.report(0)))
    place = NodeInEnvironment("task-x-1", 0, 0, 2, lambda: next(told, gone))
    followers.ensure(EnvironmentEntry("training/dev", cast(Callable[[], InsideSession], Another)), place)
    try:
        until(lambda: seen, what="it is told")
        assert seen[0]["gone"] == gone, "and nothing before that"
    finally:
        followers.stop()


class Silent(Another):
    """A session in which nothing is known of the attempt, and which stands until it is closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()

    def messages(self, _: float) -> Iterator[tuple[dict[str, Any], bytes]]:
        yield {"of": "task-x-1", "status": {"state": "absent", "ranks": [], "left": False}}, b""
        self.closed.wait()


def test_a_forgotten_attempt_holds_no_stream(tmp_path: Path) -> None:
    """As where it was taken up once more by a process that had not heard yet that it is forgotten."""
    session, heard = Silent(), threading.Event()
    followers = EnvironmentFollowers(tmp_path, lambda name: heard.set())
    environment = EnvironmentEntry("training/dev", cast(Callable[[], InsideSession], lambda: session))
    followers.ensure(environment, NodeInEnvironment("task-x-1", 0, 0, 2, lambda: None))
    try:
        assert heard.wait(60)
        followers.drop_unknown(lambda name: name == "task-x-1")
        assert not session.closed.is_set()
        followers.drop_unknown(lambda name: name == "task-y-1")
        assert session.closed.is_set()
        until(lambda: "inside-training/dev" not in {one.name for one in threading.enumerate()}, what="nobody listens")
    finally:
        followers.stop()

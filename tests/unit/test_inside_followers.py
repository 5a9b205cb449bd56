"""The streams by which attempts inside of environments are followed."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from fermi.launch.backends.carried import Files
from fermi.launch.backends.inside.followers import End, Environment, Followers, Place
from fermi.launch.errors import BackendError
from fermi.launch.inside.session import Session
from tests.waiting import until


def refusing(code: str, *, permanent: bool) -> Callable[[], Session]:
    def enter() -> Session:
        raise BackendError(code, permanent=permanent)

    return enter


def test_an_attempt_that_could_never_be_begun_is_over_once_it_is_to_end(tmp_path: Path) -> None:
    """An image without Python: nobody can ask in it, and nothing was begun in it."""
    files, changed = Files(tmp_path, "task-x", 1), threading.Event()
    followers = Followers(tmp_path, lambda name: changed.set())
    place = Place("task-x-1", 0, 0, 2, lambda: None, End(time.time()))
    followers.ensure(Environment("training/dev", refusing("INSIDE_NO_PYTHON", permanent=True)), place)
    try:
        assert changed.wait(60)
        assert (files.report(0)["left"], files.report(0)["drained"]) == (False, True)
    finally:
        followers.stop()


def test_an_environment_that_may_come_back_is_waited_for(tmp_path: Path) -> None:
    files, tries = Files(tmp_path, "task-x", 1), list[float]()

    def enter() -> Session:
        tries.append(time.monotonic())
        raise BackendError("INSIDE_NOT_RUNNING")

    followers = Followers(tmp_path, lambda name: None)
    place = Place("task-x-1", 0, 0, 2, lambda: None, End(time.time()))
    followers.ensure(Environment("training/dev", enter), place)
    try:
        until(lambda: len(tries) > 2, what="it is tried again")
        assert not files.report(0).get("drained")
    finally:
        followers.stop()


def test_each_attempt_is_asked_what_became_of_its_own_container(tmp_path: Path) -> None:
    """Both are followed by one stream."""
    gone = {"code": "CONTAINER_RESTARTED", "params": {}}
    files, changed = Files(tmp_path, "task-x", 1), threading.Event()
    followers = Followers(tmp_path, lambda name: changed.set() if name == "task-x-1" else None)
    environment = Environment("training/dev", refusing("INSIDE_NOT_RUNNING", permanent=False))
    followers.ensure(environment, Place("task-x-2", 0, 0, 2, lambda: None))
    followers.ensure(environment, Place("task-x-1", 0, 0, 2, lambda: gone))
    try:
        assert changed.wait(60)
        assert files.report(0)["gone"] == gone
        assert not Files(tmp_path, "task-x", 2).report(0).get("gone")
    finally:
        followers.stop()

"""Shows tasks in TensorBoard: copies their event files from the platform, and writes some for tasks that have none.

    <folder>/<name of the task>/…              its event files, in the folders in which the script wrote them
    <folder>/<name of the task>/events.out.…   the points that the platform has stored, for a task without event files

It runs in an environment as its start script, without any other module of the project: Python 3.9 or later, and
TensorBoard. What it may read is decided by the platform, by the token of the environment's run. TensorBoard listens on
loopback, which other processes of the host reach, too: requests without the key of the platform's proxy are refused.

    FERMI_TENSORBOARD_FEED   address of the feed (`apps.tensorboard.api.feed`)
    FERMI_TENSORBOARD_PORT   where TensorBoard listens
    FERMI_ENVIRONMENT_TOKEN, FERMI_PROXY_KEY   secrets of this run (`apps.environments.own_secrets`)
"""

from __future__ import annotations

import hmac
import json
import math
import os
import shutil
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

FOLDER = ".tensorboard"
ROUND_SECONDS = 5.0
SHARE_OF_TIME = 5.0
"""The pause after a round is at least so many times as long as the round."""
FIRST_ROUND_SECONDS = 15.0
"""How long TensorBoard waits for the first round before it begins to serve."""
MAX_BYTES = 20 << 30
"""Of all files together."""
MAX_POINT_PAGES = 20
"""Pages of points of one task in a round; the next round goes on."""
TIMEOUT_SECONDS = 30.0
POINTS_NAME = "events.out.tfevents.0.fermi"


class Feed:
    """The platform's side: what the tasks are, and what they have."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        # no proxy of the environment's: the address is the platform's own
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def read_json(self, address: str, query: dict[str, Any] | None = None) -> Any:
        """Return an answer. Raises OSError or ValueError."""
        return json.loads(self.read(address, query))

    def read(self, address: str, query: dict[str, Any] | None = None) -> bytes:
        """Return the bytes of an answer. Raises OSError."""
        asked = f"?{urllib.parse.urlencode(query)}" if query else ""
        request = urllib.request.Request(f"{self._address}/{address}{asked}", headers=self._headers)
        with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            found: bytes = answer.read()
        return found

    def announce(self) -> None:
        """Report that TensorBoard serves. Raises OSError."""
        request = urllib.request.Request(f"{self._address}/serving", data=b"", headers=self._headers, method="POST")
        with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            answer.read()


class PointsFile:
    """An event file that is written from stored points."""

    def __init__(self, path: str) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._restart: Any = event_pb2.SessionLog
        self.path, self.after = path, 0
        self._attempt = 0
        self._sources: dict[tuple[int, str], str] = {}
        self._writer: Any = RecordWriter(open(path, "wb"))  # noqa: SIM115
        self._write(file_version="brain.Event:2", wall_time=time.time())

    def add(self, points: list[dict[str, Any]]) -> None:
        """Write points. The steps that a later attempt did again replace those of an earlier one; of several sources of
        a name the first one counts."""
        for point in points:
            self.after = max(self.after, point["id"])
            attempt, step, at = point["attempt"], point["step"], point["time"]
            if self._attempt and attempt > self._attempt:
                restart = self._restart(status=self._restart.START)
                self._write(step=step, wall_time=at, session_log=restart)
            self._attempt = max(self._attempt, attempt)
            found = [
                self._summary.Value(tag=name, simple_value=value)
                for name, value in point["values"].items()
                if self._sources.setdefault((attempt, name), point["source"]) == point["source"]
                and isinstance(value, (int, float))
                and math.isfinite(value)
            ]
            if found and attempt == self._attempt:
                self._write(step=step, wall_time=at, summary=self._summary(value=found))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _write(self, **fields: Any) -> None:
        self._writer.write(self._event(**fields).SerializeToString())


class TaskCopy:
    """What was copied of a task. `budget`: bytes that may still be copied, shared by all tasks."""

    def __init__(self, feed: Feed, task_id: str, folder: str, budget: list[int]) -> None:
        self._feed, self._path, self._folder, self._budget = feed, f"tasks/{task_id}", folder, budget
        self._sizes: dict[str, int] = {}
        self._points: PointsFile | None = None
        self._is_done = False

    def update(self, is_final: bool) -> None:
        """Copy what is new. Nothing is read again once the task had ended and all was copied, unless it is retried.
        Raises OSError and ValueError."""
        if self._is_done and is_final:
            return
        files = self._feed.read_json(f"{self._path}/files")["files"]
        for file in files:
            self._copy(file["path"], file["size"])
        if files and self._points:
            self._points.close()
            os.unlink(self._points.path)
            self._points = None
        complete = True if files else self._add_points()
        self._is_done = is_final and complete

    def remove(self) -> None:
        """Remove the copy of a task that has been deleted."""
        if self._points:
            self._points.close()
        self._budget[0] += sum(self._sizes.values())
        shutil.rmtree(self._folder, ignore_errors=True)

    def _copy(self, path: str, size: int) -> None:
        """Append what the file has more than its copy; a shorter one is another file."""
        target = build_path(self._folder, path)
        have = self._sizes.get(path, 0)
        if size < have:
            os.unlink(target)
            self._budget[0] += have
            have = 0
        if size > have:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        while have < size and self._budget[0] > 0:
            data = self._feed.read(f"{self._path}/content", {"path": path, "from": have})
            if not data:
                break
            with open(target, "ab" if have else "wb") as file:
                file.write(data)
            have += len(data)
            self._budget[0] -= len(data)
            self._sizes[path] = have
        self._sizes[path] = have

    def _add_points(self) -> bool:
        """Return whether all points that are stored were written."""
        for _ in range(MAX_POINT_PAGES):
            after = self._points.after if self._points else 0
            page = self._feed.read_json(f"{self._path}/points", {"after": after})
            if page["points"] and self._points is None:
                os.makedirs(self._folder, exist_ok=True)
                self._points = PointsFile(os.path.join(self._folder, POINTS_NAME))
            if self._points:
                self._points.add(page["points"])
                self._points.after = max(self._points.after, page["last"])
            if not page["more"]:
                return True
        return False


class Follower:
    """Copies the tasks again and again."""

    def __init__(self, feed: Feed, folder: str) -> None:
        self._feed, self._folder = feed, folder
        self._copies: dict[str, TaskCopy] = {}
        self._budget = [MAX_BYTES]
        self._last_error = ""
        self.has_copied = threading.Event()

    def follow(self) -> None:
        """Never return. An error is reported once, until the next round without one."""
        while True:
            begun = time.monotonic()
            error = ""
            try:
                self.copy_once()
            except Exception as problem:  # the next round may find what it needs
                error = f"{type(problem).__name__}: {problem}"
            if error and error != self._last_error:
                print(f"the platform's files cannot be read, this is tried again: {error[:300]}")
            self._last_error = error
            self.has_copied.set()
            time.sleep(max(ROUND_SECONDS, SHARE_OF_TIME * (time.monotonic() - begun)))

    def copy_once(self) -> None:
        """Copy what is new of all tasks; the error of one is raised when the others were copied."""
        listed = self._feed.read_json("tasks")["tasks"]
        for task_id in self._copies.keys() - {task["id"] for task in listed}:
            self._copies.pop(task_id).remove()
        problem: Exception | None = None
        for task in listed:
            copy = self._copies.get(task["id"])
            if copy is None:
                folder = build_path(self._folder, task["folder"])
                copy = self._copies[task["id"]] = TaskCopy(self._feed, task["id"], folder, self._budget)
            try:
                copy.update(task["isFinal"])
            except Exception as error:
                problem = error
        if self._budget[0] <= 0:
            print(f"more than {MAX_BYTES >> 30} GiB of event files: the rest is not copied")
        if problem:
            raise problem


def build_path(folder: str, path: str) -> str:
    """Return a path below a folder. Raises ValueError for one that leads out of it."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(path)
    return os.path.join(folder, *parts)


def guard(application: Callable[..., Any], key: str) -> Callable[..., Any]:
    """Return the WSGI application for requests with the key of the platform's proxy; others are refused."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        given = environ.get("HTTP_X_FERMI_PROXY_KEY", "")
        if not key or not hmac.compare_digest(given.encode("latin-1", "replace"), key.encode()):
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"This TensorBoard is opened through the platform.\n"]
        return application(environ, start_response)

    return answer


def serve(folder: str, port: int, key: str, announce: Callable[[], None]) -> int:
    """Run TensorBoard and return its exit code. `announce` is called when it is about to accept requests."""
    from tensorboard import default, main_lib, program

    class GuardedServer(program.WerkzeugServer):
        def __init__(self, wsgi_app: Any, flags: Any) -> None:
            super().__init__(guard(wsgi_app, key), flags)

        def serve_forever(self) -> None:  # its socket listens already
            announce()
            super().serve_forever()

    main_lib.global_init()
    board: Any = program.TensorBoard(plugins=default.get_plugins(), server_class=GuardedServer)
    options = {
        "logdir": folder, "host": "127.0.0.1", "port": str(port), "reload_interval": "5", "reload_multifile": "true",
        "load_fast": "false",
    }  # fmt: skip
    flags = board.configure(argv=["tensorboard", *(f"--{name}={value}" for name, value in options.items())])
    return int(board.main(flags) or 0)


def main() -> int:
    """Copy and serve until the process is ended."""
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        print(f"TensorBoard is not installed for {sys.executable}: {error}")
        print("Install it there (pip install 'tensorboard>=2.20,<3'), or name an image that has it.")
        return 3
    feed = Feed(os.environ["FERMI_TENSORBOARD_FEED"], os.environ.pop("FERMI_ENVIRONMENT_TOKEN"))
    folder = os.path.abspath(FOLDER)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    follower = Follower(feed, folder)
    threading.Thread(target=follower.follow, daemon=True).start()
    follower.has_copied.wait(FIRST_ROUND_SECONDS)

    def announce() -> None:
        for pause in (0.5, 1, 2, 4, 8):
            try:
                feed.announce()
                break
            except OSError as error:
                print(f"the platform cannot be reached: {error}")
                time.sleep(pause)

    port = int(os.environ["FERMI_TENSORBOARD_PORT"])
    return serve(folder, port, os.environ.pop("FERMI_PROXY_KEY"), announce)


if __name__ == "__main__":
    sys.exit(main())

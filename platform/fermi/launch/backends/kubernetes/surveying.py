"""Looks into dev environments' pods, once in each life of their container: with which interpreter they can be entered,
or why not. What is found becomes `Node.engine["inside"]`."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fermi.launch.backends.kubernetes.client import Refused
from fermi.launch.backends.kubernetes.gang import Object
from fermi.launch.backends.kubernetes.inside import Environments, container_status, why_not_running
from fermi.launch.errors import BackendError

log = logging.getLogger(__name__)

PARALLEL = 8
AGAIN_SECONDS = 60.0
"""After which one that could not be looked into, for a reason that may pass, is looked into again."""
MOST_TEXT = 300
Facts = Mapping[str, Any]


class Surveys:
    """Those of a cluster. `on_news` is called, from a thread of ours, whenever something was found."""

    def __init__(self, environments: Environments, on_news: Callable[[], None]) -> None:
        self._environments, self._on_news = environments, on_news
        self._known: dict[tuple[str, str], tuple[float, Facts]] = {}  # (pod's uid, container's id) -> (until, facts)
        self._asked: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="survey")

    def of(self, pod: Object, container: str, python: str = "") -> Facts | None:
        """Returns what is known; None where it has not been looked into yet, which is begun."""
        if why := why_not_running(pod, container):
            return _why("INSIDE_NOT_RUNNING", {"why": why})
        found = container_status(pod, container) or {}
        life = pod["metadata"]["uid"], str(found.get("containerID") or "")
        with self._lock:
            until, facts = self._known.get(life, (0.0, None))
            if until <= time.monotonic() and life not in self._asked:
                self._asked.add(life)
                where = pod["metadata"]["namespace"], pod["metadata"]["name"], str(found["name"])
                self._pool.submit(self._look, life, where, python)
            return facts

    @property
    def busy(self) -> bool:
        """Whether some are being looked into."""
        with self._lock:
            return bool(self._asked)

    def keep(self, lives: set[str]) -> None:
        """Forgets those of other pods than these, by uid."""
        with self._lock:
            self._known = {life: facts for life, facts in self._known.items() if life[0] in lives}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look(self, life: tuple[str, str], where: tuple[str, str, str], python: str) -> None:
        try:
            until, facts = self._ask(where, python)
        except Exception as error:
            log.exception("the survey of %s failed", "/".join(where))
            until, facts = AGAIN_SECONDS, _why("INSIDE_SILENT", {"why": f"{type(error).__name__}: {error}"})
        with self._lock:
            self._known[life] = (time.monotonic() + until, facts)
            self._asked.discard(life)
        self._on_news()

    def _ask(self, where: tuple[str, str, str], python: str) -> tuple[float, Facts]:
        """And for how many seconds that is believed."""
        try:
            with self._environments.enter(*where, python) as session:
                return float("inf"), _believed(session.ask("survey", parts=["interpreters", "container"]))
        except Refused as refused:
            code = "INSIDE_FORBIDDEN" if refused.status == 403 else "INSIDE_SILENT"
            return AGAIN_SECONDS, _why(code, {"why": refused.message})
        except BackendError as error:
            return float("inf") if error.permanent else AGAIN_SECONDS, _why(error.code, error.params)


def _believed(said: Mapping[str, Any]) -> Facts:
    found: dict[str, Any] = {}
    for name in ("python", "version", "interpreter", "home", "life"):
        if isinstance(value := said.get(name), str) and value:
            found[name] = value[:MOST_TEXT]
    if isinstance(user := said.get("user"), int) and not isinstance(user, bool):
        found["user"] = user
    return found if "python" in found else _why("INSIDE_SILENT", {"why": "the survey told no interpreter"})


def _why(code: str, params: Mapping[str, Any]) -> Facts:
    return {"why": code, "params": {name: str(value)[:MOST_TEXT] for name, value in params.items() if value}}

"""Survey of dev environments' pods, in each life of their container: with which interpreter they can be entered, or why
not. The latter is tried again, for an interpreter may be installed, or space freed. The result becomes
`Node.engine["inside"]`."""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fermi.engines.kubernetes.client import KubernetesApiError
from fermi.engines.kubernetes.gang import Object
from fermi.engines.kubernetes.inside import PodEnvironments, explain_not_running, find_container_status
from fermi.jobs.errors import BackendError

log = logging.getLogger(__name__)

MAX_PARALLEL = 8
RETRY_SECONDS, MAX_RETRY_SECONDS = 60.0, 1800.0
"""After which an environment that could not be entered is surveyed again. Where the reason does not pass by itself, the
time doubles with each survey."""
SILENT_RETRY_SECONDS = 5.0
"""After which an environment is surveyed again that did not answer the first time: that shows nothing yet."""
MAX_TEXT_CHARS, MAX_DEVICES = 300, 64
_DEVICE = re.compile(r"[A-Za-z0-9_]{1,40}")
SurveyFacts = Mapping[str, Any]
ContainerLife = tuple[str, str]
"""The pod's uid and the container's id."""


class EnvironmentSurveys:
    """Surveys of a cluster. `on_news` is called, from a thread of ours, whenever something was found."""

    def __init__(self, environments: PodEnvironments, on_news: Callable[[], None]) -> None:
        self._environments, self._on_news = environments, on_news
        self._known: dict[
            ContainerLife, tuple[float, SurveyFacts | None]
        ] = {}  # (until when it is used, what was found)
        self._pauses: dict[ContainerLife, float] = {}
        self._asked: set[ContainerLife] = set()
        self._ended = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="survey")

    def find_survey(self, pod: Object, container: str, python: str = "") -> SurveyFacts | None:
        """Return what is known of a container; None where it has not been surveyed yet, which is started."""
        uid = pod["metadata"]["uid"]
        if why := explain_not_running(pod, container):
            with self._lock:
                self._forget(lambda life: life[0] == uid)
            return _build_refusal("INSIDE_NOT_RUNNING", {"why": why})
        found = find_container_status(pod, container) or {}
        life = uid, str(found.get("containerID") or "")
        with self._lock:
            until, facts = self._known.get(life, (0.0, None))
            if until <= time.monotonic() and life not in self._asked:
                self._forget(lambda other: other[0] == uid and other != life)
                self._asked.add(life)
                where = pod["metadata"]["namespace"], pod["metadata"]["name"], str(found["name"])
                self._pool.submit(self._look, life, where, python)
            return facts

    @property
    def busy(self) -> bool:
        """Whether some are being surveyed."""
        with self._lock:
            return bool(self._asked)

    @property
    def ended(self) -> int:
        """Return how many surveys have ended."""
        with self._lock:
            return self._ended

    @property
    def has_due(self) -> bool:
        """Whether one is to be surveyed again."""
        with self._lock:
            now = time.monotonic()
            return any(until <= now and life not in self._asked for life, (until, _facts) in self._known.items())

    def drop_other_pods(self, lives: set[str]) -> None:
        """Remove results of other pods than these, by uid."""
        with self._lock:
            self._forget(lambda life: life[0] not in lives)

    def _forget(self, is_over: Callable[[ContainerLife], bool]) -> None:
        for life in [one for one in self._known if is_over(one)]:
            del self._known[life]
            self._pauses.pop(life, None)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look(self, life: ContainerLife, where: tuple[str, str, str], python: str) -> None:
        try:
            passes, facts = self._ask(where, python)
        except Exception as error:
            log.exception("the survey of %s failed", "/".join(where))
            passes, facts = True, _build_refusal("INSIDE_SILENT", {"why": f"{type(error).__name__}: {error}"})
        with self._lock:
            known: SurveyFacts | None = facts
            pause = RETRY_SECONDS if passes else min(2 * self._pauses.get(life, RETRY_SECONDS / 2), MAX_RETRY_SECONDS)
            if facts.get("why") == "INSIDE_SILENT" and life not in self._pauses:
                pause, known = SILENT_RETRY_SECONDS, None
            self._pauses[life] = pause
            self._known[life] = (time.monotonic() + pause if "why" in facts else float("inf"), known)
            self._asked.discard(life)
            self._ended += 1
        self._on_news()

    def _ask(self, where: tuple[str, str, str], python: str) -> tuple[bool, SurveyFacts]:
        """Return whether a reason why not may pass by itself, and what was found."""
        try:
            with self._environments.enter(*where, python) as session:
                return True, _parse_facts(session.request("survey", parts=["interpreters", "container"]))
        except KubernetesApiError as refused:
            code = "INSIDE_FORBIDDEN" if refused.status == 403 and refused.permanent else "INSIDE_SILENT"
            return True, _build_refusal(code, {"why": refused.message})
        except BackendError as error:
            return not error.permanent, _build_refusal(error.code, error.params)


def _parse_facts(answer: Mapping[str, Any]) -> SurveyFacts:
    found: dict[str, Any] = {}
    for name in ("python", "version", "interpreter", "home", "life"):
        if isinstance(value := answer.get(name), str) and value:
            found[name] = value[:MAX_TEXT_CHARS]
    if isinstance(user := answer.get("user"), int) and not isinstance(user, bool):
        found["user"] = user
    container = answer.get("container")
    if isinstance(container, Mapping) and isinstance(devices := container.get("rdma"), list):
        found["rdma"] = [one["device"] for one in devices[:MAX_DEVICES] if _is_usable_device(one)]
    return found if "python" in found else _build_refusal("INSIDE_SILENT", {"why": "the survey told no interpreter"})


def _is_usable_device(entry: Any) -> bool:
    """Return whether a value is an RDMA device that the container can open, with an active port."""
    if not isinstance(entry, Mapping) or entry.get("usable") is not True or entry.get("state") != "ACTIVE":
        return False
    return isinstance(device := entry.get("device"), str) and bool(_DEVICE.fullmatch(device))


def _build_refusal(code: str, params: Mapping[str, Any]) -> SurveyFacts:
    return {"why": code, "params": {name: str(value)[:MAX_TEXT_CHARS] for name, value in params.items() if value}}

"""A rolling update from the last release: its processes run on while the database is upgraded, then each is replaced by
a new one, as Kubernetes does it. Meanwhile people work, and a task trains."""

import itertools
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource

from fermi.client.sse import MEDIA_TYPE, Event
from tests import previous_release
from tests.platform_process import ROOT, WARM, free_port
from tests.polling import until
from tests.replicas import Replicas

pytestmark = pytest.mark.faults

LONG = {
    "totalSteps": 100_000, "stepDelay": 0.05, "checkpointEvery": 500, "logEvery": 1, "evalEvery": 100_000,
    "evalBatches": 1,
}  # fmt: skip
SHORT = {"totalSteps": 5, "evalBatches": 1}
GRACE_SECONDS = 60  # what a pod of the chart has at most
REPLACED = ("worker", "worker-2", "watch", "watch-2", "beat", "beat-2", "web", "web-2")


class Balancer(httpx.BaseTransport):
    """Sends each request to the next of the web processes that serve. Nothing is sent a second time."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self.answers: Counter[int] = Counter()
        self.broken: list[str] = []
        self._under_way: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._turn, self._wire = itertools.count(), httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            port = self._ports[next(self._turn) % len(self._ports)]
            self._under_way[port] += 1
        request.url = request.url.copy_with(port=port)
        try:
            answer = self._wire.handle_request(request)
        except httpx.TransportError as error:
            self.broken.append(f"{request.method} {request.url}: {error!r}")
            raise
        finally:
            with self._lock:
                self._under_way[port] -= 1
        self.answers[answer.status_code] += 1
        return answer

    def change_ports(self, ports: list[int]) -> None:
        """Send what comes to these ports. Returns once what was sent to others is answered."""
        with self._lock:
            left, self._ports = set(self._ports) - set(ports), ports
        until(lambda: not any(self._under_way[port] for port in left), seconds=120, what="the old process has answered")


class People:
    """They create short tasks, look at lists and at tasks, all the while, in threads of their own."""

    def __init__(self, platform: Replicas) -> None:
        self.platform = platform
        self.balancer = Balancer(list(platform.ports))
        token = (platform.data / "token").read_text().strip()
        self.client = httpx.Client(
            base_url="http://127.0.0.1/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60,
            transport=self.balancer,
        )  # fmt: skip
        self.created: list[str] = []
        self.refused: list[str] = []
        self._gone = threading.Event()
        self._threads = [threading.Thread(target=what, daemon=True) for what in (self._create, self._look)]

    def come(self) -> None:
        for thread in self._threads:
            thread.start()

    def go(self) -> None:
        self._gone.set()
        for thread in self._threads:
            thread.join(120)

    def _create(self) -> None:
        """One after the other in an environment of its own: the next waits for the one before."""
        while not self._gone.wait(2):
            request = self.platform.request(["env-003"], hyperparameters=SHORT)
            if found := self._asked("POST", "/training-tasks", request):
                self.created.append(found["taskId"])

    def _look(self) -> None:
        while not self._gone.wait(0.05):
            for task in (self._asked("GET", "/training-tasks?pageSize=5") or {"items": []})["items"]:
                self._asked("GET", f"/training-tasks/{task['taskId']}")

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        try:
            answer = self.client.request(method, path, json=body)
        except httpx.TransportError:
            return None  # the balancer has it
        if answer.is_error:
            self.refused.append(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
            return None
        return answer.json()["data"]


class Reader(threading.Thread):
    """Somebody who follows a task's stream until it ends, and comes back wherever the connection breaks."""

    def __init__(self, client: httpx.Client, task_id: str) -> None:
        super().__init__(daemon=True)
        self.events: list[Event] = []
        self.breaks = 0
        self._client, self._path = client, f"/training-tasks/{task_id}/stream"

    def run(self) -> None:
        last = ""
        while not (self.events and self.events[-1].kind == "end"):
            headers = {"Accept": MEDIA_TYPE} | ({"Last-Event-ID": last} if last else {})
            try:
                with self._client.stream("GET", self._path, headers=headers) as answer:
                    for event in EventSource(answer).iter_sse():
                        last = event.id or last
                        if event.data:
                            self.events.append(Event(event.event, event.json(), last))
            except httpx.TransportError:
                pass
            self.breaks += 1

    def items(self, kind: str) -> list[Any]:
        return [one for event in self.events if event.kind == kind for one in event.data.get("items", [event.data])]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("rolling")
    code = folder / "release"
    if not previous_release.tree(code):
        pytest.skip("this checkout has no history with the last release")
    running = Replicas(folder / "data", code, **WARM)
    try:
        yield running.start()
    finally:
        running.close()


def replace(platform: Replicas, people: People, name: str) -> None:
    """A new process first; then the old one is taken out, and asked to end once nothing is sent to it any more."""
    old = platform.children[name]
    if name.startswith("web"):
        port = free_port()
        platform.start_process(name, port)
        until(lambda: not platform.faults(port), seconds=120, what=f"the new {name} serves")
        people.balancer.change_ports(list(platform.moved(name, port)))
    else:
        platform.start_process(name)
    old.send_signal(signal.SIGTERM)
    try:
        old.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        old.kill()
        old.wait()


def test_a_rolling_update_answers_every_request_and_loses_nothing(platform: Replicas) -> None:
    people = People(platform)
    task_id = platform.create(["env-001", "env-002"], hyperparameters=LONG)
    reader = Reader(people.client, task_id)
    reader.start()
    people.come()
    until(lambda: people.created, what="people work")

    platform.run(ROOT)
    platform.manage("migrate", "--no-input", "--verbosity", "0")
    answered = people.balancer.answers[200]
    until(lambda: people.balancer.answers[200] > answered + 20, what="the last release answers on the new database")
    for name in REPLACED:
        replace(platform, people, name)
    answered, created = people.balancer.answers[200], len(people.created)
    until(lambda: people.balancer.answers[200] > answered + 20, what="the new one answers")
    until(lambda: len(people.created) > created, what="people go on")
    people.go()

    assert not people.refused
    assert not people.balancer.broken
    assert set(people.balancer.answers) <= {200, 201}
    assert platform.task(task_id)["status"] == "running"  # it was there all the while
    platform.api.post(f"/training-tasks/{task_id}/stop").raise_for_status()
    for created_id in people.created:
        assert platform.until_final(created_id, seconds=240)["status"] == "succeeded"
    assert platform.until_final(task_id)["attempt"] == 1
    stored = [one["step"] for one in platform.items(task_id, "metrics", limit=5000) if "loss" in one["values"]]
    assert stored == list(range(1, len(stored) + 1))
    reader.join(60)
    assert reader.breaks > 1  # the processes that it read from ended
    assert [one["step"] for one in reader.items("metric") if "loss" in one["values"]] == stored
    events = platform.items(task_id, "events", pageSize=200)
    assert [one["id"] for one in reader.items("event")] == sorted(one["id"] for one in events)

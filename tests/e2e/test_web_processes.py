"""Two web processes behind one port: each does for what the other was asked, and one may be killed."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from fermi.runner import processes
from tests.platform_process import Running
from tests.polling import until

pytestmark = pytest.mark.e2e

BOTH = {"web", "web-2"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("webs") / "data", FERMI_WEB="2").start()
    until(lambda: all(served_by(running, name) for name in BOTH), seconds=120, what="both serve")
    yield running
    running.close()


@contextmanager
def without(platform: Running, name: str) -> Iterator[None]:
    """That process takes nothing meanwhile."""
    entry = platform.processes()[name]
    processes.send_signal(entry, signal.SIGSTOP)
    try:
        yield
    finally:
        processes.send_signal(entry, signal.SIGCONT)


def client(platform: Running, of: str) -> httpx.Client:
    """With a connection that this process has taken, and keeps."""
    found = httpx.Client(base_url=f"{platform.url}/api/v1", headers=platform.api.headers, timeout=60)
    with without(platform, (BOTH - {of}).pop()):
        found.get("/auth/me").raise_for_status()
    return found


def served_by(platform: Running, name: str) -> bool:
    if not platform.processes().keys() >= BOTH:
        return False
    try:
        with without(platform, (BOTH - {name}).pop()):
            return httpx.get(f"{platform.url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def first(lines: Iterator[str], wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    for line in lines:
        if line.startswith("data:") and wanted(found := json.loads(line.removeprefix("data:"))):
            return found
    raise AssertionError("the stream ended")


def test_a_stream_of_one_web_process_shows_changes_made_through_the_other(platform: Running) -> None:
    with closing(client(platform, of="web")) as here, closing(client(platform, of="web-2")) as there:
        made = here.post("/training-tasks", json=platform.request(["env-001"])).raise_for_status()
        task = made.json()["data"]["taskId"]
        with here.stream("GET", f"/training-tasks/{task}/stream") as answer:
            lines = answer.raise_for_status().iter_lines()
            there.post(f"/training-tasks/{task}/stop").raise_for_status()
            first(lines, lambda data: data.get("status") in ("stopping", "stopped"))
        assert there.get(f"/training-tasks/{task}").json()["data"]["status"] in ("stopping", "stopped")


def test_a_process_slowed_down_by_another_program_is_restarted_and_named(platform: Running) -> None:
    before = platform.processes()["web-2"]["pid"]
    if os.getpriority(os.PRIO_PROCESS, before) == 19:
        pytest.skip("these tests run with the highest niceness")
    os.setpriority(os.PRIO_PROCESS, before, 19)

    def replaced() -> bool:
        there = platform.processes().get("web-2")
        return there is not None and there["pid"] != before

    until(replaced, what="another process is there")
    warnings = httpx.get(f"{platform.url}/readyz", timeout=60).json()["warnings"]
    assert [(one["code"], one["params"]["process"]) for one in warnings if one["code"] == "PROCESS_CHANGED"] == [
        ("PROCESS_CHANGED", "web-2")
    ]
    until(lambda: served_by(platform, "web-2"), seconds=120, what="it serves")


def test_a_killed_web_process_is_restarted_while_the_other_answers(platform: Running) -> None:
    for name in sorted(BOTH):
        before = platform.processes()[name]["pid"]
        platform.kill(name)
        asked = 0
        while (there := platform.processes().get(name)) is None or there["pid"] == before or asked < 20:
            assert httpx.get(f"{platform.url}/readyz", timeout=60).status_code == 200
            asked += 1
        until(lambda name=name: served_by(platform, name), seconds=120, what=f"{name} serves again")
        for _ in range(20):
            assert httpx.get(f"{platform.url}/readyz", timeout=60).status_code == 200

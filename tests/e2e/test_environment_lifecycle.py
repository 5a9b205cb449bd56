"""Environments of the real platform live and die as they should, whoever is killed meanwhile. Who may not come in is
in tests/proxy and tests/api/test_environments_managed.py."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fermi.client import Fermi
from tests.platform_process import ROOT, Running
from tests.polling import until
from tests.proxy.conftest import Inside
from tests.proxy.test_jupyter import run_cell

pytestmark = pytest.mark.e2e
CELL = """
import os, time
open("kept.txt", "w").write("yes")
while not os.path.exists("enough"): time.sleep(0.05)
print("done")
"""


@pytest.fixture(scope="module")
def fermi(platform: Running) -> Iterator[Fermi]:
    with Fermi(platform.url, (platform.data / "token").read_text("utf-8").strip()) as client:
        yield client


@pytest.fixture(scope="module")
def clock(platform: Running) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.e2e.clock_script"]
    with subprocess.Popen(command, env=platform.env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as script:
        yield script


def make(platform: Running, name: str, **more: Any) -> str:
    asked = {"templateId": "template-custom", "projectId": "default", "name": name, **more}
    answer = platform.api.post("/dev-environments/make", json=asked)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["data"]["id"])


def act(platform: Running, key: str, verb: str, **body: Any) -> Any:
    answer = platform.api.post(f"/dev-environments/{key}/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]["hosted"]


def hosted(platform: Running, key: str) -> Any:
    return platform.get(f"/dev-environments/{key}")["hosted"]


def until_is(platform: Running, key: str, state: str, run: int = 1) -> Any:
    def reached() -> Any:
        found = hosted(platform, key)
        assert found["state"] != "failed", (found, platform.get(f"/dev-environments/{key}/logs"))
        return (found["state"], found["run"]) == (state, run) and found

    return until(reached, seconds=120, what=f"{key} is {state}")


def known(platform: Running) -> set[str]:
    return {one["id"] for one in platform.get("/dev-environments", pageSize=100)["items"]}


def keepers(platform: Running) -> Counter[str]:
    """Living keepers of each environment."""
    found: Counter[str] = Counter()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        spec = Path(words[3]) if words[1:3] == ["-m", "fermi.envd"] else Path()
        if spec.is_relative_to(platform.data / "environments"):
            found[spec.parts[-4]] += 1
    return found


def enter(platform: Running, key: str) -> Inside:
    answer = platform.api.post(f"/dev-environments/{key}/doors", json={})
    assert answer.status_code == 201, answer.text
    return Inside(platform.port, answer.json()["data"]["url"])


def test_make_up_offers_environments_and_a_catalogue(platform: Running) -> None:
    own = {one["id"]: one["hosted"] for one in platform.get("/dev-environments")["items"]}
    assert all(one and one["allowedActions"] for one in own.values())
    assert {one["kind"] for one in platform.get("/environment-templates")["items"]} == {"jupyter", "vscode", "custom"}
    assert not keepers(platform), "what nobody has opened costs nothing"
    inside = enter(platform, "env-001")
    page = until(lambda: (answer := inside.get("/lab", Accept="text/html")).status_code != 503 and answer)
    assert (page.status_code, "JupyterLab" in page.text) == (200, True)
    assert keepers(platform) == {"env-001": 1}


def test_an_idle_notebook_is_warned_stopped_and_restarted_with_its_disk(
    platform: Running, fermi: Fermi, clock: subprocess.Popen[bytes]
) -> None:
    key = make(platform, "lab", templateId="template-jupyter", idleStopMinutes=30)
    until_is(platform, key, "running")
    inside = enter(platform, key)
    page = until(lambda: (answer := inside.get("/lab", Accept="text/html")).status_code == 200 and answer)
    xsrf = next(one for one in page.headers.get_list("set-cookie") if one.startswith("_xsrf=")).partition(";")[0]
    inside.cookie = f"{inside.cookie}; {xsrf}"
    headers = {"Origin": inside.origin, "X-XSRFToken": xsrf.partition("=")[2]}
    kernel = inside.send("POST", "/api/kernels", content=b"{}", headers=headers).json()["id"]
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(run_cell, inside, kernel, CELL)
        until(lambda: later(clock, 0) and busy(platform, key) == [True], what="the cell is seen")
        assert hosted(platform, key)["stopsAt"] is None
        later(clock, 25)
        assert warnings(platform, key) == 0, "a kernel is at work"
        (platform.data / "environments" / key / "workspace" / "enough").touch()
        assert ran.result(60) == "done\n"
        inside.http.close()
        until(lambda: later(clock, 25) and hosted(platform, key)["stopsAt"], what="nobody is at it")
        later(clock, 50)
        assert (hosted(platform, key)["state"], warnings(platform, key)) == ("running", 1)
        kept = act(platform, key, "keep", hours=2)
        assert kept["stopsAt"] == kept["keepUntil"]
        later(clock, 100)
        assert hosted(platform, key)["state"] == "running", "somebody wants it for two hours"
        later(clock, 145)
        assert (hosted(platform, key)["state"], warnings(platform, key)) == ("running", 2), "nobody stops unwarned"
        later(clock, 160)
    stopped = until_is(platform, key, "stopped")
    assert (stopped["reason"]["code"], keepers(platform)[key]) == ("ENVIRONMENT_IDLE", 0)
    act(platform, key, "start")
    until_is(platform, key, "running", run=2)
    assert fermi.environments.run(key, ["cat", "kept.txt"]).stdout == b"yes"
    platform.api.delete(f"/dev-environments/{key}").raise_for_status()
    until(lambda: key not in known(platform), what="it is gone")


def later(clock: subprocess.Popen[bytes], minutes: int | str) -> bool:
    assert clock.stdin
    assert clock.stdout
    clock.stdin.write(f"{minutes}\n".encode())
    clock.stdin.flush()
    return clock.stdout.readline() == b"done\n"


def busy(platform: Running, key: str) -> list[bool]:
    return [one["busy"] for one in hosted(platform, key)["kernels"]]


def warnings(platform: Running, key: str) -> int:
    events = platform.get(f"/dev-environments/{key}/life")["events"]
    return [one["code"] for one in events].count("ENVIRONMENT_IDLE_WARNED")


def test_after_any_kill_there_is_one_daemon_per_environment_and_finally_none(
    platform: Running, clock: subprocess.Popen[bytes]
) -> None:
    """Beside them, three that are made for a task and go with it."""

    def kill(*names: str) -> None:
        platform.kill(*names)
        until(platform.is_up, what="it serves again")
        later(clock, "due")

    before = known(platform)
    template = {"name": "one GPU", "projectId": "default", "clusterId": "local", "kind": "custom", "gpuType": "A100",
                "gpuCount": 1, "emulated": True, "startScript": "exec sleep 1000"}  # fmt: skip
    made = platform.api.post("/environment-templates", json=template)
    new = {"template": made.json()["data"]["id"], "count": 3, "afterwards": "delete"}
    task = platform.create(["new"], environmentIds=[], launchMode="new", newEnvironments=new,
                           distributedConfig={"framework": "ddp"}, hyperparameters={"totalSteps": 400})  # fmt: skip
    theirs = known(platform) - before
    mine = [make(platform, name, startScript="exec sleep 1000") for name in ("one", "two", "three")]
    until(lambda: {*mine, *theirs} & {*keepers(platform)}, what="the first is at it")
    kill("web", "worker", "beat")
    for key in mine:
        until_is(platform, key, "running")
    assert (len(theirs), {keepers(platform)[key] for key in mine}) == (3, {1})

    platform.until_state(task, "running", "succeeded")
    act(platform, mine[0], "stop")
    act(platform, mine[1], "restart")
    kill("worker", "beat")
    until_is(platform, mine[0], "stopped")
    until_is(platform, mine[1], "running", run=2)
    assert [keepers(platform)[key] for key in mine] == [0, 1, 1]

    act(platform, mine[0], "start")
    platform.kill_everything()
    platform.start()
    later(clock, "due")
    assert platform.until_final(task)["status"] == "succeeded"
    until_is(platform, mine[0], "running", run=2)
    assert [keepers(platform)[key] for key in mine] == [1, 1, 1]

    for key in mine:
        platform.api.delete(f"/dev-environments/{key}").raise_for_status()
    kill("worker")
    until(lambda: known(platform) == before, seconds=120, what="all that was made is gone")
    gone = {*mine, *theirs}
    assert not gone & {*keepers(platform)}
    assert not gone & {path.name for path in (platform.data / "environments").iterdir()}

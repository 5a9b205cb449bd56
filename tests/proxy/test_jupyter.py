"""Real JupyterLab, run by real envd, through the proxy: its page, a kernel, a cell."""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from apps.environments import connection
from apps.proxy import targets
from fermi.engines.environments import Activity, EnvironmentBackend, EnvironmentHandle, EnvironmentSpec
from fermi.engines.local import environment_runs
from fermi.planning import plugins
from tests.polling import until
from tests.proxy.conftest import ENVIRONMENT, Console, Inside

MAKES_LARGE = """
import hashlib, os
whole = os.urandom(1 << 20) * 9
open("large.bin", "wb").write(whole)
print(hashlib.sha256(whole).hexdigest())
"""
HANDLE = EnvironmentHandle(ENVIRONMENT, 1)


@pytest.fixture
def hosting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvironmentBackend]:
    data: Path = tmp_path_factory.mktemp("data")
    found = plugins.get_environment_backend("local", {"data_dir": str(data), "isolation": "auto"})
    assert found
    found.start(found.render(EnvironmentSpec(ENVIRONMENT, "notebook", "project-one", 1)))
    yield found
    for run in environment_runs.list_living_runs(data):
        until(lambda run=run: (run.request_end(0.0), not run.read_state().left and not run.strays())[1])


def test_a_notebook_is_opened_and_a_cell_run_through_the_proxy(
    member: Console, hosting: EnvironmentBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "dial_envd", lambda environment: hosting.dial(HANDLE))
    monkeypatch.setattr(
        targets, "get_run_number", lambda environment: HANDLE.run
    )  # others' connections are kept for theirs
    inside = member.enter(path="/lab")
    starting: list[int] = []

    def opened() -> Any:
        answer = inside.get("/lab", Accept="text/html")
        starting.append(answer.status_code)
        return answer.status_code != 503 and answer

    page = until(opened, seconds=120, what="JupyterLab is up")
    assert page.status_code == 200, page.text
    assert "JupyterLab" in page.text
    assert set(starting) <= {503, 200}
    script = re.search(r'src="(/static/lab/main\.[^"]+)"', page.text)
    assert script, page.text[:2000]
    assert inside.get(script[1]).status_code == 200

    xsrf = next(cookie for cookie in page.headers.get_list("set-cookie") if cookie.startswith("_xsrf="))
    token = xsrf.partition(";")[0].partition("=")[2]
    inside.cookie = f"{inside.cookie}; _xsrf={token}"
    refused = inside.send("POST", "/api/kernels", content=b"{}", headers={"Origin": "http://evil.example"})
    assert refused.status_code == 403
    made = inside.send("POST", "/api/kernels", content=b"{}", headers={"Origin": inside.origin, "X-XSRFToken": token})
    assert made.status_code == 201, made.text
    kernel = made.json()["id"]
    assert run_cell(inside, kernel, "print(6 * 7)") == "42\n"

    def seen() -> Activity:
        return hosting.observe([HANDLE])[HANDLE.name].activity

    until(lambda: kernel in {one.id for one in seen().kernels}, what="its kernel is seen")
    assert seen().at is not None

    digest = run_cell(inside, kernel, MAKES_LARGE)
    large = inside.get("/files/large.bin", **{"X-XSRFToken": token})
    assert (len(large.content), hashlib.sha256(large.content).hexdigest()) == (9 << 20, digest.strip())


def run_cell(inside: Inside, kernel: str, code: str) -> str:
    """What it printed."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "username": "",
        "session": "s",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    printed = ""
    with connect(
        f"ws://{inside.host}/api/kernels/{kernel}/channels", sock=inside.dial(), origin=inside.origin,  # type: ignore[arg-type]
        additional_headers={"Cookie": inside.cookie}, max_size=None, proxy=None,
    ) as channels:  # fmt: skip
        channels.send(json.dumps(message))
        while True:
            said = json.loads(channels.recv(60))
            if said["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            if said["msg_type"] == "stream":
                printed += said["content"]["text"]
            if said["msg_type"] == "status" and said["content"]["execution_state"] == "idle":
                return printed

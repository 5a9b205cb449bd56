"""`python -m server.up`, as `make up` runs it, with real processes on scratch data."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fermi.engines import isolation
from fermi.engines.local.launcher import get_default_python
from tests.platform_process import ROOT, Running
from tests.polling import until

pytestmark = pytest.mark.e2e

PARTS = {"fermi", "broker", "web", "worker", "beat", "watch"}


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Running]:
    """Not started yet. Its database is prepared where a test is not about that."""
    running = Running(tmp_path / "data")
    yield running
    running.close()


@pytest.fixture
def fresh(platform: Running) -> Running:
    platform.fresh = True
    return platform


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for the tests after which it serves as before."""
    running = Running(tmp_path_factory.mktemp("serving") / "data").start()
    yield running
    running.close()


def sentence(data: Path | str, *arguments: str, **env: str) -> tuple[int, str]:
    """Exit code and output of a `server.up` that is expected to end at once."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    done = subprocess.run(
        [sys.executable, "-m", "server.up", *arguments],
        env={**os.environ, "PYTHONPATH": path, "FERMI_DATA": str(data), **env}, cwd=ROOT,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def living(data: Path) -> list[str]:
    """Command lines of the processes that were started with this data directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FERMI_DATA={data}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_it_serves_the_api_and_the_console(serving: Running) -> None:
    assert set(serving.processes()) == PARTS
    assert (serving.data / "token").stat().st_mode & 0o777 == 0o600
    assert serving.api.get("/auth/me").json()["data"]["username"] == "admin"
    page = httpx.get(f"{serving.url}/training")
    assert "script-src 'self';" in page.headers["content-security-policy"]
    assert httpx.get(f"{serving.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{serving.url}/metrics").status_code == 401
    token = {"Authorization": f"Bearer {(serving.data / 'token').read_text().strip()}"}
    assert "python_info" in httpx.get(f"{serving.url}/metrics", headers=token).text


def test_the_start_reports_what_prevents_training(serving: Running) -> None:
    """What can be had differs between machines, so it is asked here as the platform asks it."""
    place = isolation.SandboxPaths(serving.data, serving.data / "workspace", get_default_python())
    lines = [
        line for line in serving.output.read_text("utf-8").splitlines() if "training on this machine" in line.lower()
    ]
    found = isolation.choose_isolation("auto", place)
    tested = " Tested from inside a task: it cannot access anything that belongs to the platform."
    tried = tested if found.protects else ""
    assert lines == [f"fermi  | {found.sentences('en')}{tried}"]


def test_a_signed_out_user_signs_in_with_a_new_link(serving: Running) -> None:
    assert httpx.get(f"{serving.url}/api/v1/auth/sign-in").json()["data"] == {"embedded": True}
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}  # these tests' own
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    fermi = [sys.executable, "-m", "fermi.cli", "login-link", "--lang", "en", "--data", str(serving.data)]
    made = subprocess.run(fermi, env=env, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr
    link = made.stdout.strip()
    assert link.startswith(f"{serving.url}/auth/link/")
    with httpx.Client(follow_redirects=True) as browser:
        assert browser.get(link).url.path == "/"
        assert browser.get(f"{serving.url}/api/v1/auth/me").json()["data"]["username"] == "admin"
    assert httpx.get(link).status_code == 410
    nobody = subprocess.run([*fermi, "nobody"], env=env, capture_output=True, text=True)
    assert (nobody.returncode, nobody.stdout) == (4, "")
    assert "There is no active user 'nobody'." in nobody.stderr


def test_ctrl_c_leaves_no_process_and_a_second_start_prints_a_new_link(fresh: Running) -> None:
    platform = fresh.start()
    platform.interrupt()
    assert platform.supervisor
    assert platform.supervisor.returncode == 0
    assert living(platform.data) == []
    first = platform.output.read_text()
    assert "stopped; no training was running." in first
    platform.start()
    second = platform.output.read_text().removeprefix(first)
    assert "preparing the database" in first
    assert "preparing the database" not in second
    links = [text.partition("sign in, once: ")[2].partition("\n")[0] for text in (first, second)]
    assert links[0] != links[1]
    answer = httpx.get(links[1])
    assert answer.status_code == 302
    assert "sessionid" in answer.cookies
    assert httpx.get(links[1]).status_code == 410


def test_a_killed_process_is_restarted(serving: Running) -> None:
    before = serving.processes()
    for name in ("worker", "web", "broker"):
        serving.kill(name)
        until(lambda name=name: serving.processes().get(name, {}).get("pid") not in (None, before[name]["pid"]))  # type: ignore[misc]
        assert f"{name} was killed by SIGKILL; starting it again" in serving.output.read_text()
    until(serving.is_up, what="it serves again")


def test_a_start_after_a_killed_supervisor_ends_leftover_processes(platform: Running) -> None:
    platform.start()
    assert platform.supervisor
    platform.supervisor.kill()
    platform.supervisor.wait()
    assert "web" in platform.processes()
    platform.start()  # it may be the old web process that answers
    until(lambda: platform.output.read_text().count("sign in, once: ") == 2, what="the new platform serves")
    assert "ended what a killed platform had left running: " in platform.output.read_text()
    platform.interrupt()
    assert living(platform.data) == []


def test_one_platform_per_data_directory(serving: Running) -> None:
    code, output = sentence(serving.data)
    assert code == 2
    assert f"already runs on this data directory (process {serving.supervisor and serving.supervisor.pid})" in output
    assert set(serving.processes()) == PARTS


def test_training_outlives_ctrl_c_and_ends_with_make_down(platform: Running) -> None:
    platform.start()
    task = platform.create(["env-001"], hyperparameters={"totalSteps": 100_000})
    platform.until_state(task, "running")
    platform.interrupt()
    assert "stopped; 1 training task keeps running: `make up` picks it up again" in platform.output.read_text()
    assert platform.strays() == [f"{task}-1"]

    platform.start()
    code, output = sentence(platform.data, "down")
    assert code == 0
    assert f"training stopped: {task}" in output
    assert platform.supervisor
    assert platform.supervisor.wait(60) == 0
    assert living(platform.data) == platform.strays() == []
    assert sentence(platform.data, "down") == (0, "fermi  | no training was running\n")

    platform.start()
    assert platform.until_final(task)["status"] == "stopped"


def test_sigterm_during_the_start_leaves_no_process(fresh: Running) -> None:
    with fresh.output.open("ab") as output:
        command = [sys.executable, "-m", "server.up"]
        supervisor = subprocess.Popen(command, env=fresh.env, cwd=ROOT, stdout=output, stderr=output)
    until(lambda: "preparing the database" in fresh.output.read_text(), what="it is at work")
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(60) == 0
    assert living(fresh.data) == []


def test_under_nohup_closing_the_terminal_ends_nothing(fresh: Running) -> None:
    with fresh.output.open("ab") as output:
        command = ["nohup", sys.executable, "-m", "server.up"]
        supervisor = subprocess.Popen(command, env=fresh.env, cwd=ROOT, stdout=output, stderr=output)
    until(lambda: "preparing the database" in fresh.output.read_text(), what="it is at work")
    supervisor.send_signal(signal.SIGHUP)
    until(lambda: "serving" in fresh.output.read_text() or supervisor.poll() is not None, what="it serves")
    assert supervisor.poll() is None, fresh.output.read_text()
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(60) == 0
    assert living(fresh.data) == []


def test_a_busy_port_is_one_sentence_and_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        code, output = sentence(tmp_path / "data", FERMI_PORT=str(port))
    assert code == 2
    assert output.splitlines() == [
        f"fermi  | Port {port} on 127.0.0.1 is in use: stop what holds it, or choose another with PORT=<number>."
    ]
    assert living(tmp_path / "data") == []


def test_an_invalid_setting_is_one_sentence_and_starts_nothing(tmp_path: Path) -> None:
    code, output = sentence(tmp_path / "data", FERMI_ISOLATION="docker")
    assert code == 2
    assert output.splitlines() == ["fermi  | FERMI_ISOLATION must be one of auto, user, landlock, off, not 'docker'."]
    assert not (tmp_path / "data").exists()


def test_an_unwritable_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, output = sentence(tmp_path / "file" / "data")
    assert code == 2
    assert len(output.splitlines()) == 1
    assert "cannot be written to (not a directory): choose another with DATA=<directory>." in output


def test_an_exposed_platform_gives_a_warning(platform: Running) -> None:
    """An address beyond this machine, and training that nothing keeps from the platform."""
    platform.env |= {"FERMI_HOST": "0.0.0.0", "FERMI_ISOLATION": "off"}
    platform.start()
    said = platform.output.read_text("utf-8")
    assert "Other machines can reach this address" in said
    assert f"fermi  | {isolation.Isolation(False, None, enabled=False).sentences('en')}" in said.splitlines()
    warnings = until(lambda: httpx.get(f"{platform.url}/readyz").json()["warnings"])
    assert [one["code"] for one in warnings if one["code"].startswith("ISOLATION")] == ["ISOLATION_OFF"]
    host = socket.gethostname()
    assert httpx.get(f"{platform.url}/auth/link/x", headers={"Host": host}).status_code == 410
    assert httpx.get(f"{platform.url}/auth/link/x", headers={"Host": "rebound.example"}).status_code == 400

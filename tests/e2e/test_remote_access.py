"""From a laptop's directory into an environment of the real platform, with `fermi` alone."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pexpect
import pytest

from fermi.client import Fermi
from tests.clean_environment import as_in_a_terminal
from tests.platform_process import Running, free_port

pytestmark = pytest.mark.e2e

Answer = subprocess.CompletedProcess[str]
Cli = Callable[..., Answer]
FERMI = [sys.executable, "-m", "fermi.cli"]
SECONDS = 120


@pytest.fixture(scope="module")
def laptop(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Somebody who signed in once, and has no other variables."""
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in platform.env.items() if not name.startswith(("FERMI_", "XDG_"))}
    env = {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "LANG": "en_US.UTF-8", "FERMI_DATA": str(home)}
    token = (platform.data / "token").read_text("utf-8")
    done = subprocess.run([*FERMI, "login", platform.url, "--token", "-"], env=env, input=token, text=True)
    assert done.returncode == 0
    return env


@pytest.fixture(scope="module")
def fermi(laptop: dict[str, str]) -> Cli:
    def run(*arguments: str, text: str = "") -> Answer:
        command = [*FERMI, *arguments]
        return subprocess.run(command, env=laptop, input=text, capture_output=True, text=True, timeout=SECONDS)

    return run


@pytest.fixture(scope="module")
def mine(fermi: Cli, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its id. A custom one, whose script serves a page at the declared port."""
    asked = tmp_path_factory.mktemp("asked") / "web.yaml"
    script = 'cd "$HOME" && echo begun && exec python3 -m http.server --bind 127.0.0.1 "$PORT"'
    port = free_port()
    template = {
        "kind": "custom", "cpuCores": 1, "memoryGb": 1, "startScript": script, "env": {"PORT": str(port)},
        "ports": [{"name": "web", "port": port}],
    }  # fmt: skip
    asked.write_text(json.dumps(template), "utf-8")
    made = fermi("environments", "templates", "create", "web", "-f", str(asked), "-o", "json")
    assert made.returncode == 0, made.stderr
    made = fermi("environments", "make", "web", "--name", "mine", "--env", "WORD=two words", "--wait", "-o", "json")
    assert made.returncode == 0, made.stderr
    assert re.search(r"^env-\w+ is (creating|starting)", made.stderr, re.MULTILINE)
    found = json.loads(made.stdout)
    assert found["hosted"]["state"] == "running"
    return str(found["id"])


def result(answer: Answer) -> Any:
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_a_command_returns_its_output_and_exit_code(fermi: Cli, mine: str) -> None:
    done = fermi("run", "--env", "mine", "--", "sh", "-c", 'cat; echo "$WORD" >&2; exit 7', text="x" * 300_000)
    assert (done.returncode, len(done.stdout), done.stderr) == (7, 300_000, "two words\n")
    assert fermi("run", "--env", "env-999", "--", "true").returncode == 4
    assert fermi("run", "--env", mine, "--", "/no/such/program").returncode == 127


def test_a_terminal_has_a_pty(laptop: dict[str, str], mine: str) -> None:
    with as_in_a_terminal():
        shell = pexpect.spawn(FERMI[0], [*FERMI[1:], "shell", "mine", "--set-env", "PS1=far> "], env=laptop,
                              timeout=SECONDS, dimensions=(33, 91), encoding="utf-8")  # fmt: skip
    shell.sendline("stty size; echo $TERM''inal")
    shell.expect_exact("33 91")
    shell.sendline("sh -c 'echo as\"\"leep; exec sleep 100'")  # what is begun has the terminal, so the key is its
    shell.expect_exact("asleep")
    shell.sendintr()
    shell.sendline("exit 5")
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 5


def test_its_page_opens_in_a_browser_once(fermi: Cli, mine: str, platform: Running) -> None:
    url = fermi("open", "mine", "--door", "web", "--path", "/", "--print").stdout.strip()
    host = httpx.URL(url).host
    assert host.endswith(".localhost")
    place, door = httpx.URL(url).raw_path.decode(), {"Host": httpx.URL(url).netloc.decode()}
    inside = httpx.Client(base_url=platform.url, headers=door)
    entered = inside.get(place)
    assert entered.status_code in (302, 303), entered.text
    cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
    assert "Directory listing" in inside.get("/", headers=cookie).text
    assert httpx.get(platform.url + place, headers=door).status_code >= 400


def test_the_python_client_runs_commands(laptop: dict[str, str], platform: Running, mine: str) -> None:
    token = (platform.data / "token").read_text("utf-8").strip()
    with Fermi(platform.url, token) as client:
        assert client.environments.run(mine, ["echo", "hello"]).stdout == b"hello\n"
        assert "begun" in "".join(client.environments.logs(mine))


@pytest.mark.skipif(not (shutil.which("ssh") and shutil.which("rsync")), reason="openssh-client and rsync are wanted")
def test_ssh_scp_and_rsync_connect_through_the_proxy(
    fermi: Cli, laptop: dict[str, str], mine: str, tmp_path: Path
) -> None:
    assert fermi("ssh-config", "--write").returncode == 0
    config = ["-F", f"{laptop['HOME']}/.ssh/config"]

    def run(*words: str) -> Answer:
        done = subprocess.run(words, env=laptop, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        return done

    assert run("ssh", *config, "fermi-mine", "echo $WORD").stdout == "two words\n"
    content = os.urandom(1 << 20)
    (tmp_path / "model.bin").write_bytes(content)
    home = run("ssh", *config, "fermi-mine", "pwd").stdout.strip()
    for protocol in ("-O", "-s"):
        run("scp", protocol, *config, str(tmp_path / "model.bin"), f"fermi-mine:{home}/there{protocol}")
        run("scp", protocol, *config, f"fermi-mine:{home}/there{protocol}", str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == content
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text("print('new')\n", "utf-8")
    run("rsync", "-a", "-e", " ".join(["ssh", *config]), f"{source}/", f"fermi-mine:{home}/code/")
    assert fermi("run", "--env", "mine", "--", "python3", f"{home}/code/train.py").stdout == "new\n"


def test_an_environment_is_kept_resized_stopped_and_started_from_the_command_line(fermi: Cli, mine: str) -> None:
    """Last in this file: it ends the environment."""
    kept = result(fermi("environments", "keep", "mine", "--hours", "1.5", "-o", "json"))
    assert kept["hosted"]["keepUntil"]
    assert fermi("environments", "resize", "mine", "--memory", "2").returncode == 0
    assert fermi("environments", "stop", "mine", "--wait").returncode == 0
    assert fermi("run", "--env", "mine", "--", "true").returncode == 2
    assert fermi("environments", "start", "mine", "--wait").returncode == 0
    shown = fermi("environments", "show", "mine")
    assert shown.returncode == 0, shown.stderr
    for word in ("running", "web", "Runs", "Events", "GPU-hours"):
        assert word in shown.stdout
    assert len(result(fermi("environments", "show", "mine", "-o", "json"))["life"]["runs"]) == 2
    assert fermi("environments", "delete", "mine", "--yes").returncode == 0
    assert fermi("environments", "templates", "delete", "web").returncode == 0

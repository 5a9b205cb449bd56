"""`fermi run`, `shell`, `open` and `ssh` as processes of their own, against real processes behind a WebSocket."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pexpect
import pytest

from fermi.client import config
from fermi.client.config import Config
from tests.clean_environment import as_in_a_terminal
from tests.fakes.channels import FakeChannels, channels

PLATFORM = Path(config.__file__).parents[2]
ENV = "/dev-environments/env-001"
HOSTED = {"state": "running", "doors": [{"name": "web", "port": 1}]}
ENVIRONMENT = {"id": "env-001", "name": "mine", "status": "running", "hosted": HOSTED}
EVERYDAY = 60


class Front(BaseHTTPRequestHandler):
    """The platform's other half: JSON here, WebSockets there; one address, as the platform has it."""

    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self.answer(200, {"items": [ENVIRONMENT], "total": 1} if "?" in self.path else ENVIRONMENT)

    def answer(self, status: int, data: Any) -> None:
        raw = json.dumps({"code": status, "message": "", "data": data}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


def splice(client: socket.socket, channels_port: int, rest_port: int) -> None:
    head = b""
    while b"\r\n\r\n" not in head and (data := client.recv(1 << 16)):
        head += data
    other = socket.create_connection(("127.0.0.1", channels_port if b"\r\nUpgrade:" in head else rest_port))
    other.sendall(head)

    def pump(one: socket.socket, two: socket.socket) -> None:
        try:
            while data := one.recv(1 << 16):
                two.sendall(data)
            two.shutdown(socket.SHUT_WR)
        except OSError:
            two.close()

    threading.Thread(target=pump, args=(client, other), daemon=True).start()
    pump(other, client)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeChannels]:
    home = tmp_path_factory.mktemp("far")
    with channels(f"{ENV}/channel", "/training-tasks/task-1/ranks/3/channel", env={"HOME": str(home)}) as fake:
        rest = ThreadingHTTPServer(("127.0.0.1", 0), Front)
        threading.Thread(target=rest.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        door = socket.create_server(("127.0.0.1", 0))
        port = int(fake.url.rpartition(":")[2])

        def accept() -> None:
            while True:
                try:
                    client, _ = door.accept()
                except OSError:
                    return
                threading.Thread(target=splice, args=(client, port, rest.server_port), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        fake.url = f"http://127.0.0.1:{door.getsockname()[1]}"
        yield fake
        door.close()
        rest.shutdown()
        rest.server_close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, there: FakeChannels) -> Path:
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        config.save_config(Config(there.url, "secret"))
    return folder


@pytest.fixture(autouse=True)
def signed_in(home: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(empty_home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("PYTHONPATH", str(PLATFORM))
    monkeypatch.setenv("LANG", "C.UTF-8")


FERMI = [sys.executable, "-m", "fermi.cli"]


def fermi(*words: str, text: str | None = None) -> "subprocess.CompletedProcess[str]":
    piped: dict[str, Any] = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
    return subprocess.run([*FERMI, *words], capture_output=True, text=True, timeout=EVERYDAY, **piped)


# run ------------------------------------------------------------------------------------------------------------------


def test_a_command_has_its_own_streams_and_exit_code() -> None:
    done = fermi("run", "--cwd", "/usr", "--set-env", "A=1 2", "--", "sh", "-c", 'cat; pwd; echo "$A" >&2; exit 9',
                 text="in\n")  # fmt: skip
    assert (done.returncode, done.stdout) == (9, "in\n/usr\n")
    assert done.stderr == "Environment: mine (env-001), the only one running.\n1 2\n"


def test_the_double_dash_before_a_command_is_optional(there: FakeChannels) -> None:
    assert fermi("run", "--env", "mine", "echo", "--env", "x", "-n").stdout == "--env x -n\n"
    assert fermi("run", "--env", "mine", "--no-stdin", "cat", text="unread").stdout == ""


def test_a_closed_output_ends_the_command() -> None:
    line = f"{sys.executable} -m fermi.cli run --env mine -- yes | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=EVERYDAY)
    assert (done.stdout, done.stderr) == ("y\n141\n", "")


def test_the_first_ctrl_c_goes_to_the_command_and_the_second_kills_it() -> None:
    script = "trap 'echo caught' INT; echo ready; while :; do sleep 0.05; done"
    with as_in_a_terminal():
        running = subprocess.Popen([*FERMI, "run", "--env", "mine", "--", "sh", "-c", script], text=True,
                                   stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)  # fmt: skip
    assert running.stdout
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    assert running.stdout.readline() == "caught\n"
    running.send_signal(signal.SIGINT)
    assert running.wait(EVERYDAY) == 128 + signal.SIGKILL
    running.stdout.close()


def test_an_unknown_environment_is_reported() -> None:
    done = fermi("run", "--env", "env-999", "--", "true")
    assert (done.returncode, done.stderr) == (4, "Error: refused: NOT_FOUND\n")
    assert fermi("run").returncode == 2


# shell ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shell() -> Iterator[Any]:
    """A shell of this machine in a terminal, in which `fermi shell` is typed."""
    with as_in_a_terminal():
        local = pexpect.spawn("/bin/sh", env={**os.environ, "PS1": "here> ", "TERM": "xterm"}, timeout=EVERYDAY,
                              dimensions=(33, 91), encoding="utf-8")  # fmt: skip
    local.expect_exact("here> ")
    yield local
    local.close(force=True)


def enter(local: Any, *words: str) -> None:
    local.sendline(" ".join([*FERMI, "shell", *words]))


def test_a_remote_terminal_has_the_local_size_and_gets_every_key(shell: Any) -> None:
    before = settings(shell)
    enter(shell, "mine", "--set-env", "PS1='fa''r> '")
    shell.expect_exact("far> ")
    shell.sendline("stty size; echo $TERM")
    shell.expect_exact("33 91")
    shell.expect_exact("xterm")
    shell.setwinsize(44, 101)
    shell.sendline("until [ \"$(stty size)\" = '44 101' ]; do sleep 0.05; done; echo re''sized")
    shell.expect_exact("resized")
    shell.sendline("sh -c 'echo as\"\"leep; exec sleep 100'")  # what is begun has the terminal, so the key is its
    shell.expect_exact("asleep")
    shell.sendintr()
    shell.expect_exact("far> ")
    shell.sendline("exit 7")
    shell.expect_exact("here> ")
    shell.sendline("echo code $?")
    shell.expect_exact("code 7")
    assert settings(shell) == before


def settings(local: Any) -> str:
    local.sendline("echo '[['; stty -g; echo ']]'")
    local.expect(r"\r\n\[\[\r\n(.*?)\r\n\]\]")
    return str(local.match.group(1))


def test_the_escape_sequence_disconnects_and_restores_the_terminal(shell: Any) -> None:
    before = settings(shell)
    enter(shell, "mine", "--", "sh", "-c", "'echo rea\"\"dy; cat'")
    shell.expect_exact("ready")
    shell.sendline("~~ hello")
    shell.expect_exact("~ hello")
    shell.expect_exact("~ hello")
    shell.send("~.")
    shell.expect_exact("here> ")
    shell.sendline("echo code $?")
    shell.expect_exact("code 130")
    assert settings(shell) == before


def test_a_shell_ended_from_outside_restores_the_terminal(shell: Any) -> None:
    before = settings(shell)
    enter(shell, "mine", "--", "sh", "-c", "'echo rea\"\"dy; cat'")
    shell.expect_exact("ready")
    [child] = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text("utf-8").split()
    os.kill(int(child), signal.SIGTERM)
    shell.expect_exact("here> ")
    shell.sendline("echo code $?")
    shell.expect_exact("code 143")
    assert settings(shell) == before


def test_a_silent_terminal_shows_what_it_waits_for(shell: Any, there: FakeChannels) -> None:
    there.starting = {"files": ["~/.profile", "~/.bashrc"], "command": "flock \x1b[2J/lock"}
    there.may_open.clear()
    try:
        enter(shell, "mine", "--set-env", "PS1='fa''r> '")
        shell.expect_exact("Not connected yet: the platform is opening the terminal.\r\n")
        there.may_open.set()
        shell.expect_exact("The login shell is starting, and has printed nothing yet. ")
        shell.expect_exact("It is reading ~/.profile, ~/.bashrc. ")
        shell.expect_exact("It is waiting for: flock \\x1b[2J/lock\r\n")
        shell.expect_exact("far> ")
        shell.sendline("exit 0")
        shell.expect_exact("here> ")
        assert fermi("shell", "mine", text="echo in a pipe\n").stderr == "", "a program reads that"
    finally:
        there.starting = None
        there.may_open.set()


def test_a_shell_next_to_a_rank_is_requested_by_rank(there: FakeChannels) -> None:
    done = fermi("shell", "task-1", "--rank", "3", "--", "sh", "-c", "cat; exit 3", text="piped")
    assert (done.returncode, done.stdout) == (3, "piped")
    assert there.handshakes[-1][0].endswith("/training-tasks/task-1/ranks/3/channel")
    assert there.requests[-1]["tty"] is None


# open -----------------------------------------------------------------------------------------------------------------


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"page {self.path}".encode())

    def log_message(self, *_: object) -> None:
        pass


def test_a_proxy_address_is_forwarded_where_names_do_not_resolve(there: FakeChannels, tmp_path: Path) -> None:
    page = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    there.doors["web"] = page.server_port
    said = tmp_path / "said"
    with as_in_a_terminal(), said.open("w") as errors:
        running = subprocess.Popen([*FERMI, "open", "mine", "--local", "--path", "lab", "--print"], text=True,
                                   stdout=subprocess.PIPE, stderr=errors)  # fmt: skip
    assert running.stdout
    url = running.stdout.readline().strip()
    assert url, said.read_text("utf-8")
    with urllib.request.urlopen(url, timeout=EVERYDAY) as answer:
        assert answer.read() == b"page /lab"
    running.send_signal(signal.SIGINT)
    assert running.wait(EVERYDAY) == 130
    running.stdout.close()
    page.shutdown()
    page.server_close()


# ssh ------------------------------------------------------------------------------------------------------------------

pytest.importorskip("asyncssh")
needs_ssh = pytest.mark.skipif(not shutil.which("ssh"), reason="ssh is not installed (openssh-client)")
needs_rsync = pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed")


@pytest.fixture(scope="module")
def ssh(home: Path, there: FakeChannels) -> list[str]:
    """`ssh` looks for its file in its user's folder wherever HOME points, so it is told."""
    file = home / ".ssh" / "config"
    place = {"XDG_CONFIG_HOME": str(home / "config"), "HOME": str(home), "PYTHONPATH": str(PLATFORM)}
    written = subprocess.run([*FERMI, "ssh-config", "--write"], env={**os.environ, **place}, timeout=EVERYDAY)
    assert written.returncode == 0
    return ["-F", str(file)]


def local(*words: str, **more: Any) -> "subprocess.CompletedProcess[Any]":
    return subprocess.run(words, capture_output=True, timeout=EVERYDAY, **more)


@needs_ssh
def test_ssh_runs_commands_with_their_input_output_errors_and_exit_codes(ssh: list[str]) -> None:
    done = local("ssh", *ssh, "fermi-mine", "cat; echo oh >&2; exit 7", input=b"x" * 2_000_000)
    assert (done.returncode, len(done.stdout), done.stderr) == (7, 2_000_000, b"oh\n")
    assert local("ssh", *ssh, "fermi-env-001", "echo $HOME", text=True).stdout.rstrip().rpartition("/")[2] == "far0"


@needs_ssh
def test_ssh_has_a_pty(ssh: list[str]) -> None:
    with as_in_a_terminal():
        session = pexpect.spawn("ssh", [*ssh, "-tt", "fermi-mine", "stty size; read x; stty size; exit 4"],
                                timeout=EVERYDAY, dimensions=(33, 91), encoding="utf-8")  # fmt: skip
    session.expect_exact("33 91")
    session.setwinsize(44, 101)
    session.sendline("")
    session.expect_exact("44 101")
    session.expect(pexpect.EOF)
    session.close()
    assert session.exitstatus == 4


@needs_ssh
@pytest.mark.parametrize("protocol", ["-O", "-s"])
def test_scp_copies_a_file_in_both_directions(ssh: list[str], protocol: str, tmp_path: Path) -> None:
    content = os.urandom(1 << 20)
    (tmp_path / "a file").write_bytes(content)
    there, back = tmp_path / f"there{protocol}", tmp_path / f"back{protocol}"
    for words in ((str(tmp_path / "a file"), f"fermi-mine:{there}"), (f"fermi-mine:{there}", str(back))):
        done = local("scp", protocol, *ssh, *words, text=True)
        assert done.returncode == 0, done.stderr
    assert back.read_bytes() == content


@needs_ssh
@needs_rsync
def test_rsync_copies_a_folder_and_then_only_changes(ssh: list[str], tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    for number in range(20):
        (source / "deep" / f"{number}.py").write_text(f"print({number})\n" * 1000, "utf-8")
    words = ["rsync", "-a", "--stats", "-e", " ".join(["ssh", *ssh]), f"{source}/", f"fermi-mine:{target}/"]
    first = local(*words, text=True)
    assert first.returncode == 0, first.stderr
    assert (target / "deep" / "7.py").read_text("utf-8").startswith("print(7)\n")
    (source / "deep" / "7.py").write_text("changed\n", "utf-8")
    assert "Number of regular files transferred: 1\n" in local(*words, text=True).stdout
    assert (target / "deep" / "7.py").read_text("utf-8") == "changed\n"


@needs_ssh
@pytest.mark.parametrize("declared", [True, False])
def test_declared_and_undeclared_ports_are_forwarded(ssh: list[str], there: FakeChannels, declared: bool) -> None:
    page = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    there.doors = {"web": page.server_port} if declared else {}
    request = b"GET /x HTTP/1.0\r\n\r\n"
    done = local("ssh", *ssh, "-W", f"127.0.0.1:{page.server_port}", "fermi-mine", input=request)
    assert done.stdout.endswith(b"page /x"), done.stderr
    assert [one["open"] for one in there.requests[-2:]] == (["port"] if declared else ["port", "exec"])[-2:] or declared
    page.shutdown()
    page.server_close()


def test_ssh_config_entries_are_unique_and_other_entries_kept(empty_home: Path, there: FakeChannels) -> None:
    file = empty_home / "dotfiles" / "ssh_config"
    file.parent.mkdir()
    file.write_text("Compression yes\n\nHost other\n  User me\n", "utf-8")
    (empty_home / ".ssh").mkdir(mode=0o700)
    (empty_home / ".ssh" / "config").symlink_to(file)
    assert fermi("ssh-config", "--write").returncode == 0
    first = file.read_text("utf-8")
    assert "is up to date" in fermi("ssh-config", "--write").stderr
    assert file.read_text("utf-8") == first
    assert first.endswith("Match all\n# <<< fermi ssh-config\n\nCompression yes\n\nHost other\n  User me\n")
    if shutil.which("ssh"):
        means = local("ssh", "-F", str(file), "-G", "other", text=True).stdout.splitlines()
        assert {"compression yes", "user me"} <= {*means}
        ours = local("ssh", "-F", str(file), "-G", "fermi-mine", text=True).stdout.splitlines()
        assert {"user fermi", "hostname env-001", "stricthostkeychecking true"} <= {*ours}


def test_without_asyncssh_the_install_command_is_shown() -> None:
    hide = (
        "import sys; sys.modules['asyncssh'] = None; from fermi.cli.main import run_command; "
        "sys.exit(run_command(['ssh-config']))"
    )
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, timeout=EVERYDAY)
    assert done.returncode == 2
    assert f"{sys.executable} -m pip install 'asyncssh>=" in done.stderr

"""The process that sends: what it may reach, and that it ends in time."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.notices.sender import process
from apps.notices.sender.errors import DeliveryError
from apps.notices.sender.process import SenderProcess, SendersBusyError
from apps.notices.sender.sandbox import SENDER_UID
from fermi.runner.sandbox import read_landlock_abi
from tests.polling import until

CHECK = {"do": "check", "address": "json://hooks.example.org/"}
EVALUATES = """
import os, sys
sys.path.insert(0, sys.argv[1])
from apps.notices.sender import child
def is_open(fd):
    try:
        return bool(os.fstat(fd))
    except OSError:
        return False
def carry_out(order, readable):
    import resource, subprocess
    try:
        return {"answer": repr(eval(order["what"], {**globals(), **locals()}))}
    except OSError as error:
        return {"answer": type(error).__name__}
child.carry_out_order = carry_out
child.main()
"""
OPEN_FILES = "[fd for fd in range(3, 64) if is_open(fd)]"
needs_landlock = pytest.mark.skipif(not read_landlock_abi(), reason="this kernel has no Landlock")


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.NOTICE_HOSTS = ["hooks.example.org", "127.0.0.0/8"]


@pytest.fixture(scope="module")
def confined() -> Iterator[SenderProcess]:
    """A process that is started and confined as the one that sends, and does what it is told: without the guard."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_START_CODE", EVALUATES)
        patch.setenv("FERMI_SECRET_KEY", "secret")
        patch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
        sender = SenderProcess()
        sender._start()
    yield sender
    sender.kill()


def evaluate_in_sender(sender: SenderProcess, what: str) -> str:
    return sender.carry_out({"what": what}, 60)


@needs_landlock
@pytest.mark.parametrize("what", [
    "open('/etc/passwd').read()", "open('/proc/self/environ').read()", "open('/proc/kmsg').read()",
    "open('{root}/manage.py').read()", "os.listdir('{root}')", "open('{folder}/secret').read()",
    "open('{folder}/new', 'w')", "open('/dev/shm/new', 'w')", "os.mkdir('{folder}/made')",
    "os.remove('{folder}/secret')", "os.execv('/bin/true', ['true'])", "subprocess.run(['/bin/true'])",
])  # fmt: skip
def test_the_sender_cannot_access_files_of_the_platform(
    confined: SenderProcess, root: Path, tmp_path: Path, what: str
) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "secret").write_text("x")
    assert evaluate_in_sender(confined, what.format(root=root, folder=tmp_path)) == "PermissionError"
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


@pytest.mark.skipif(read_landlock_abi() < 6, reason="this kernel's Landlock does not keep signals back")
def test_the_sender_cannot_send_signals(confined: SenderProcess) -> None:
    assert evaluate_in_sender(confined, f"os.kill({os.getpid()}, 0)") == "PermissionError"


def test_the_sender_inherits_no_setting_file_or_permission(confined: SenderProcess) -> None:
    assert set(eval(evaluate_in_sender(confined, "sorted(os.environ)"))) <= {
        *process._KEPT_VARIABLES,
        "HOME",
        "LANG",
        "PATH",
        "LC_CTYPE",
    }
    assert evaluate_in_sender(confined, "os.getcwd()") == "'/'"
    assert len(eval(evaluate_in_sender(confined, OPEN_FILES))) == 1, "the connection"
    assert evaluate_in_sender(confined, "resource.getrlimit(resource.RLIMIT_CORE)") == "(0, 0)"
    if os.geteuid() == 0:
        assert evaluate_in_sender(confined, "os.geteuid()") in ("0", str(SENDER_UID))
        assert evaluate_in_sender(
            confined, "os.setuid(1)" if evaluate_in_sender(confined, "os.geteuid()") == "0" else "os.setuid(0)"
        ) == ("PermissionError")


def test_the_sender_resolves_names_and_has_certificate_authorities(confined: SenderProcess) -> None:
    assert "127.0.0.1" in evaluate_in_sender(confined, "__import__('socket').getaddrinfo('localhost', 80)")
    assert evaluate_in_sender(confined, "len(__import__('ssl').create_default_context().get_ca_certs()) >= 0") == "True"


def test_an_order_that_takes_too_long_ends_its_process() -> None:
    with SenderProcess() as sender:
        sender.carry_out(CHECK, 60)
        assert sender._process is not None
        first = sender._process.pid
        os.kill(first, signal.SIGSTOP)  # it answers nothing, as one that hangs in the kernel
        with pytest.raises(DeliveryError) as caught:
            sender.carry_out(CHECK, 0.2)
        assert (caught.value.code, caught.value.lasting) == ("CHANNEL_TIMED_OUT", False)
        assert not Path(f"/proc/{first}").exists()
        assert sender.carry_out(CHECK, 60) == "json://…"
        assert sender._process.pid != first
        second = sender._process.pid
    assert not Path(f"/proc/{second}").exists()


def test_a_killed_sender_is_reported_and_replaced() -> None:
    with SenderProcess() as sender:
        sender.carry_out(CHECK, 60)
        assert sender._process is not None
        os.kill(sender._process.pid, signal.SIGKILL)
        with pytest.raises(DeliveryError) as caught:
            sender.carry_out(CHECK, 60)
        assert caught.value.code == "CHANNEL_SENDER_ENDED"
        assert sender.carry_out(CHECK, 60) == "json://…"


def test_the_senders_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_START_CODE", EVALUATES)
    with SenderProcess() as sender, pytest.raises(DeliveryError) as caught:
        evaluate_in_sender(sender, "'x' * 10_000_000")
    assert caught.value.code == "CHANNEL_SENDER_ENDED"


def test_concurrent_senders_are_limited() -> None:
    with SenderProcess(), SenderProcess(), pytest.raises(SendersBusyError):
        SenderProcess().__enter__()
    with SenderProcess(), SenderProcess():
        pass


def test_the_sender_ends_with_the_platform() -> None:
    """Its connection is closed when the platform's process dies, whatever the cause."""
    sender = SenderProcess()
    sender._start()
    assert sender._process is not None
    assert sender._connection is not None
    sender._connection.shutdown(socket.SHUT_RDWR)
    until(lambda: sender._process and sender._process.poll() is not None)
    sender.kill()


def test_the_end_of_a_thread_does_not_end_the_sender() -> None:
    with SenderProcess() as sender:
        thread = threading.Thread(target=sender.carry_out, args=(CHECK, 60))
        thread.start()
        thread.join()
        assert sender.carry_out(CHECK, 60) == "json://…"

"""Ways into environments, against real processes behind a WebSocket."""

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from fermi.client import (
    ConflictError,
    Fermi,
    NotAuthenticatedError,
    NotFoundError,
    ServerError,
    UnreachableError,
    channels,
    transport,
)
from fermi.envd import protocol
from tests.fakes.channels import FakeChannels
from tests.fakes.channels import channels as serving

WAY = "/dev-environments/env-001/channel"
RANK = "/training-tasks/task-1/ranks/3/channel"


@pytest.fixture(scope="module")
def there() -> Iterator[FakeChannels]:
    with serving(WAY, RANK) as fake:
        yield fake


@pytest.fixture
def fermi(there: FakeChannels, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fermi]:
    monkeypatch.setattr(transport, "MIN_PAUSE_S", 0.001)
    with Fermi(there.url, "secret") as client:
        yield client


def test_a_command_has_input_output_errors_and_exit_code(fermi: Fermi) -> None:
    text = b"x" * 3_000_000
    done = fermi.environments.run("env-001", ["sh", "-c", "wc -c; echo oh >&2; exit 7"], stdin=text)
    assert (done.exit_code, done.stdout.strip(), done.stderr) == (7, b"3000000", b"oh\n")


def test_all_output_of_a_command_arrives(fermi: Fermi) -> None:
    done = fermi.environments.run("env-001", ["head", "-c", "3000000", "/dev/zero"])
    assert (done.exit_code, len(done.stdout)) == (0, 3_000_000)


def test_a_command_has_its_directory_and_variables(fermi: Fermi) -> None:
    done = fermi.tasks.run("task-1", ["sh", "-c", 'echo "$PWD $WORD"'], rank=3, cwd="/usr", env={"WORD": "two words"})
    assert done.stdout == b"/usr two words\n"


def test_a_killed_command_names_its_signal(fermi: Fermi) -> None:
    assert fermi.environments.run("env-001", ["sh", "-c", "kill -TERM $$"]).exit_code == 128 + signal.SIGTERM


def test_a_channel_works_within_a_running_event_loop(fermi: Fermi) -> None:
    async def in_a_notebook() -> int:
        return fermi.environments.run("env-001", ["true"]).exit_code

    assert asyncio.run(in_a_notebook()) == 0


def test_refusals_raise_the_usual_errors(fermi: Fermi, there: FakeChannels) -> None:
    with pytest.raises(NotFoundError) as stranger:
        fermi.environments.run("env-999", ["true"])
    assert (stranger.value.code, stranger.value.request_id) == ("NOT_FOUND", "req-1")
    with Fermi(there.url, "stolen") as other, pytest.raises(NotAuthenticatedError):
        other.environments.run("env-001", ["true"])
    there.refusal = {"code": "ENVIRONMENT_AWAY", "params": {}, "message": "it is away", "hint": "look at it"}
    try:
        with pytest.raises(ConflictError) as away:
            fermi.environments.run("env-001", ["true"])
    finally:
        there.refusal = None
    assert (away.value.code, away.value.message) == ("ENVIRONMENT_AWAY", "it is away")
    assert [problem.hint for problem in away.value.errors] == ["look at it"]


def test_connecting_is_retried_and_a_command_sent_once(fermi: Fermi, there: FakeChannels) -> None:
    there.failing[:] = [503, 429, 502]
    before = len(there.requests)
    assert fermi.environments.run("env-001", ["true"]).exit_code == 0
    assert len(there.requests) == before + 1
    there.failing[:] = [500]
    with pytest.raises(ServerError):
        fermi.environments.run("env-001", ["true"])
    assert there.failing == []


def test_an_unreachable_platform_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MIN_PAUSE_S", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with Fermi(url, "secret", retries=1) as fermi, pytest.raises(UnreachableError):
        fermi.environments.run("env-001", ["true"])


def test_a_broken_connection_is_not_the_end_of_the_command(fermi: Fermi, there: FakeChannels) -> None:
    async def broken() -> None:
        async with await channels.command(fermi.environments.channel("env-001"), ["sleep", "100"]) as running:
            running._socket.transport.abort()
            async for _ in running.output():
                pass

    with pytest.raises(UnreachableError) as error:
        asyncio.run(broken())
    assert error.value.code == "CONNECTION_LOST"


def test_signals_and_sizes_reach_the_command(fermi: Fermi) -> None:
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"

    async def interrupted() -> tuple[bytes, int | None]:
        said = b""
        way = fermi.environments.channel("env-001")
        async with await channels.command(way, ["sh", "-c", script]) as running:
            async for channel, data in running.output():
                assert channel == protocol.OUT
                said += data
                if data.endswith(b"ready\n"):
                    await running.signal("INT")
            return said, running.exit_code

    assert asyncio.run(interrupted()) == (b"ready\ncaught\n", 5)

    async def sized() -> bytes:
        said = b""
        way = fermi.environments.channel("env-001")
        async with await channels.command(way, ["sh", "-c", "stty size; read x; stty size"], tty=(91, 33)) as running:
            async for _channel, data in running.output():
                said += data
                if said.endswith(b"33 91\r\n"):
                    await running.resize(101, 44)
                    await running.write(b"\n")
            return said

    assert asyncio.run(sized()).split() == [b"33", b"91", b"44", b"101"]


def test_a_forwarded_port_listens_on_loopback(fermi: Fermi, there: FakeChannels) -> None:
    """Each connection is its own; where one side has no more to say it may still listen."""
    served = socket.create_server(("127.0.0.1", 0))
    there.doors["tensorboard"] = served.getsockname()[1]

    def echo() -> None:
        for _ in range(2):
            one, _ = served.accept()
            with one:
                whole = b""
                while data := one.recv(1 << 16):
                    whole += data
                one.sendall(whole[::-1])

    thread = threading.Thread(target=echo)
    thread.start()

    async def through(text: bytes) -> bytes:
        async with channels.listening(fermi.environments.channel("env-001"), door="tensorboard") as local:
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            writer.write(text)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(through(b"abc")) == b"cba"
    assert len(asyncio.run(through(b"x" * 500_000))) == 500_000
    thread.join()
    served.close()


def test_a_closed_port_is_reported(fermi: Fermi, there: FakeChannels) -> None:
    heard: list[str] = []

    async def through() -> None:
        way = fermi.environments.channel("env-001")
        async with channels.listening(way, door="none", failed=lambda error: heard.append(error.code)) as local:
            reader, _writer = await asyncio.open_connection("127.0.0.1", local)
            assert await reader.read() == b""

    asyncio.run(through())
    assert heard == ["PORT_UNKNOWN"]

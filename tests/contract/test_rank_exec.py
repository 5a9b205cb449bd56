"""What every engine does for whoever comes beside a rank."""

from collections.abc import Callable

import pytest

from fermi.envd import protocol
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Phase
from tests.contract.conftest import Engine
from tests.polling import until
from tests.process_state import alive
from tests.rank_exec import LEAVES, Beside, first_word

Begin = Callable[..., Beside]
NOISE = bytes(range(256)) * 2048 + b"\r\n\x04\x03 no line's end"


@pytest.fixture
def begin(engine: Engine) -> Begin:
    def begun(mode: str, gpus: tuple[int, ...] = (2,), said: str = "ready", **changes: object) -> Beside:
        job = engine.job(mode, gpus, **changes)
        handle = engine.submit(job, dict.fromkeys(job.secret_env, "s3cret"))
        until(lambda: all(said in engine.log(handle, rank) for rank in range(handle.world_size)), what="ranks run")
        engine.until(handle, Phase.RUNNING)
        return Beside(engine.backend, engine.backend.render(job, engine.plan(job)), handle)

    return begun


def test_a_command_has_its_ranks_variables_without_secrets(begin: Begin) -> None:
    beside = begin("secret", (1, 2), said="secret", secret_env=("API_KEY",), env={"COLOR": "blue"})
    env, _ = beside.read_environment(2, env={"MINE": "yes"})
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "COLOR", "MINE")
    assert [env[name] for name in names] == ["2", "1", "3", "1", "blue", "yes"]
    assert env["MASTER_ADDR"]
    assert "API_KEY" not in env
    assert "s3cret" not in env.values()


def test_bytes_pass_unchanged_and_the_exit_code_is_returned(begin: Begin) -> None:
    beside = begin("wait")
    with beside.open_stream(1, "sh", "-c", "cat; exit 7") as stream:
        for at in range(0, len(NOISE), 1 << 16):
            stream.sendall(protocol.encode_frame(protocol.IN, NOISE[at : at + (1 << 16)]))
        stream.sendall(protocol.encode_control({"end": True}))
        frames, out, last = protocol.FrameDecoder(), b"", b""
        while piece := stream.recv(1 << 16):
            for channel, payload in frames.feed(piece):
                out, last = (out + payload, last) if channel == protocol.OUT else (out, payload)
    assert (out, last) == (NOISE, b'{"exit": 7}')


def test_a_terminal_has_a_pty(begin: Begin) -> None:
    beside = begin("wait")
    done = beside.run(0, "sh", "-c", "tty; stty size", tty={"columns": 101, "rows": 31})
    assert done.code == 0
    assert done.out.splitlines()[1] == "31 101"


def test_a_command_and_its_children_end_with_the_connection(begin: Begin) -> None:
    beside = begin("wait")
    stream = beside.open_stream(0, "sh", "-c", LEAVES)
    left = int(first_word(stream))
    assert alive(left)
    stream.close()
    until(lambda: not alive(left), what="what it left behind is gone")
    assert beside.backend.observe([beside.handle])[beside.handle.name].phase is Phase.RUNNING


def test_a_command_next_to_an_ended_rank_is_refused(engine: Engine, begin: Begin) -> None:
    beside = begin("wait")
    known = beside.backend.get_rank_exec(beside.plan, beside.handle, 0)
    assert beside.refused(99).code == "RANK_NOT_RUNNING"
    beside.backend.cancel(beside.handle, 0.0)
    engine.until_gone(beside.handle)
    until(lambda: beside.refused(0).code == "RANK_NOT_RUNNING", what="it is known")
    with pytest.raises(BackendError, match=r"RANK_NOT_RUNNING|RANK_OUT_OF_REACH"):
        known.dial()

"""A dev environment on a real Slurm with two nodes on this machine: the job that holds it, and the way in."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fermi.engines.environments import EnvironmentPhase, EnvironmentSpec
from fermi.engines.slurm import environments
from fermi.envd import protocol
from fermi.jobs.errors import BackendError
from tests.envd_client import Kept
from tests.polling import until
from tests.slurm import Slurm, started

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NOISE = bytes(range(256)) * 4096 + b"\r\n\x04\x03 no line's end"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with started() as lab:
        yield lab


@pytest.fixture
def hosting(slurm: Slurm, tmp_path: Path, way: str) -> Iterator[environments.SlurmEnvironmentBackend]:
    connection = {**slurm.connection, **slurm.commands} if way == "rest" else slurm.commands
    yield environments.SlurmEnvironmentBackend(
        {"data_dir": str(tmp_path / "data"), "python": sys.executable, **connection}
    )
    slurm.restore()


def run(kept: Kept, *command: str, given: bytes = b"") -> tuple[int, bytes]:
    """A command through the door: what it wrote, and its exit code."""
    with kept.hosting.dial(kept.handle) as stream:
        answer = protocol.send_request(
            stream, {"open": "exec", "command": command, "cwd": "", "env": {}, "tty": None}, 60
        )
        assert answer["ok"], answer
        frames, out = protocol.FrameDecoder(), b""
        for at in range(0, len(given), 1 << 16):
            stream.sendall(protocol.encode_frame(protocol.IN, given[at : at + (1 << 16)]))
        stream.sendall(protocol.encode_control({"end": True}))
        while data := stream.recv(1 << 16):
            for channel, payload in frames.feed(data):
                out += payload if channel == protocol.OUT else b""
                if channel == protocol.CONTROL:
                    return int(json.loads(payload)["exit"]), out
    raise AssertionError((out, kept.log()))


@pytest.mark.parametrize("way", ["rest", "commands"])
def test_an_environment_runs_in_its_job(hosting: environments.SlurmEnvironmentBackend, slurm: Slurm, way: str) -> None:
    name = f"env-{way}"
    spec = EnvironmentSpec(
        name, "notes", "project-1", 1, "custom", gpu_count=1, cpu_cores=2, start_script="echo up; exec sleep 1000",
        env={"COLOUR": "red"}, secret_env={"WORD": "word"},
    )  # fmt: skip
    assert hosting.problems(spec) == []
    kept = Kept(hosting, spec).start({"WORD": "hush"})
    folder = hosting.data_dir / "slurm-environments" / name / "runs" / "1"
    (folder / "submitted.json").unlink()  # killed before it was written down
    kept.start({"WORD": "hush"})
    assert len([job for job in hosting.driver.jobs() if job.comment.endswith(f":{name}-1")]) == 1
    seen = kept.until(EnvironmentPhase.RUNNING)
    job = int(seen.facts["engine"]["allocation"])
    assert (seen.left, seen.facts["host"][:1], (folder / "secrets.json").exists()) == (True, "n", False)
    assert "gpu" in slurm.command("scontrol", "show", "job", str(job))
    code, out = run(kept, "sh", "-c", "echo $COLOUR $WORD $SLURM_JOB_ID > kept; cat kept; exit 3")
    assert (code, out.decode()) == (3, f"red hush {job}\n")
    assert run(kept, "cat", given=NOISE) == (0, NOISE)

    ended = kept.stop()
    assert (ended.phase, ended.cause) == (EnvironmentPhase.ENDED, None)
    with pytest.raises(BackendError, match="ENVIRONMENT_AWAY"):
        hosting.dial(kept.handle)
    kept.start()
    assert kept.read_status().left is False, "what was stopped does not begin again"

    second = Kept(hosting, replace(spec, run=2, secret_env={})).start()
    second.until(EnvironmentPhase.RUNNING)
    assert run(second, "cat", "kept")[1].decode() == f"red hush {job}\n"
    assert not hosting.delete(name), "it runs"
    slurm.command("scancel", str(second.read_status().facts["engine"]["allocation"]))
    lost = until(lambda: (now := second.read_status()).left is False and now)
    assert (lost.phase, lost.cause and lost.cause.code) == (EnvironmentPhase.ENDED, "JOB_CANCELLED")
    assert hosting.delete(name)
    assert not os.path.exists(folder.parents[1])


@pytest.mark.parametrize("way", ["rest"])
def test_a_pending_environment_shows_its_reason_and_never_starts_once_stopped(
    hosting: environments.SlurmEnvironmentBackend,
) -> None:
    spec = EnvironmentSpec(
        "env-2", "big", "project-1", 1, "custom", start_script="sleep 1000", cpu_cores=16, gpu_count=2
    )
    others = [Kept(hosting, replace(spec, id=name)).start() for name in ("env-3", "env-4")]
    for other in others:
        other.until(EnvironmentPhase.RUNNING)
    kept = Kept(hosting, spec).start()
    seen = until(
        lambda: (now := kept.read_status()).waiting and now.waiting.params.get("evidence") == "Resources" and now
    )
    assert (seen.phase, seen.left, seen.waiting.code) == (EnvironmentPhase.STARTING, True, "QUEUE_WAITING")
    assert kept.stop().left is False

"""Commands beside ranks: a program in their pods, through `pods/exec`."""

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from fermi.engines.kubernetes import rank_exec
from fermi.engines.kubernetes.engine import KubernetesBackend
from fermi.envd import protocol
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Handle, Phase, Rendered
from tests.envd_client import ran
from tests.fakes.kubernetes import pod_exec
from tests.fakes.kubernetes.kubelet.containers import Sleeps
from tests.polling import until
from tests.process_state import alive
from tests.unit.engines.kubernetes.conftest import Lab, handle, job, rendered, until_seen

SCRIPT = "import time; print('on', flush=True); time.sleep(600)"
SHOWN = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"


class Beside:
    def __init__(self, lab: Lab, backend: KubernetesBackend, plan: Rendered, one: Handle) -> None:
        self.lab, self.backend, self.plan, self.handle = lab, backend, plan, one

    def dial(self, rank: int) -> socket.socket:
        return self.backend.get_rank_exec(self.plan, self.handle, rank).dial()

    def run(self, rank: int, *command: str, **more: Any) -> Any:
        stream = self.dial(rank)
        assert protocol.send_request(stream, {"open": "exec", "command": list(command), **more}) == {"ok": True}
        stream.settimeout(60)
        return ran(stream)

    def refused(self, rank: int) -> BackendError:
        with pytest.raises(BackendError) as no:
            self.dial(rank).close()
        return no.value


@pytest.fixture
def training(lab: Lab, backend: KubernetesBackend) -> Iterator[Beside]:
    """Two nodes with two ranks each, and a secret."""
    spec = job(2, 1, script=SCRIPT, secret_env=("WANDB_API_KEY",), env={"COLOR": "$(blue)"})
    plan = rendered(backend, spec)
    backend.submit(plan, {"WANDB_API_KEY": "s3cret"})
    until_seen(backend, handle(spec), lambda seen: seen.phase is Phase.RUNNING)
    yield Beside(lab, backend, plan, handle(spec))
    backend.cancel(handle(spec), 0.0)


def test_a_command_has_its_ranks_variables_and_directory_and_no_secrets(training: Beside) -> None:
    done = training.run(2, "python3", "-c", SHOWN, env={"MINE": "yes"})
    assert (done.code, done.err) == (0, "")
    env, cwd = json.loads(done.out)
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["NODE_RANK"]) == ("2", "0", "3", "1")
    assert (env["COLOR"], env["MINE"], env["MASTER_ADDR"]) == ("$(blue)", "yes", "127.0.0.1")
    assert not {"WANDB_API_KEY", "FERMI_RANKS", "FERMI_POD_IP"} & env.keys()
    (pod,) = training.lab.cluster.pods("task-x-1-node-1*")
    assert pod["metadata"]["uid"] in cwd


def test_a_command_and_its_children_end_with_the_connection(training: Beside) -> None:
    stream = training.dial(0)
    script = "setsid sleep 600 & echo $!; sleep 600"
    protocol.send_request(stream, {"open": "exec", "command": ["sh", "-c", script]})
    frames = protocol.FrameDecoder()
    ((_, said),) = frames.feed(stream.recv(1 << 12))
    stream.close()
    until(lambda: not alive(int(said)), what="what it left behind is gone")


def test_large_data_passes_in_both_directions(training: Beside) -> None:
    stream = training.dial(1)
    protocol.send_request(stream, {"open": "exec", "command": ["cat"]})
    stream.settimeout(60)
    data, got, frames = bytes(range(256)) * 4096, b"", protocol.FrameDecoder()
    for start in range(0, len(data), 1 << 16):
        stream.sendall(protocol.encode_frame(protocol.IN, data[start : start + (1 << 16)]))
        while len(got) < start:
            got += b"".join(piece for channel, piece in frames.feed(stream.recv(1 << 16)) if channel == protocol.OUT)
    stream.sendall(protocol.encode_control({"end": True}))
    while piece := stream.recv(1 << 16):
        got += b"".join(payload for channel, payload in frames.feed(piece) if channel == protocol.OUT)
    assert got == data


def test_an_ended_or_missing_pod_has_no_running_rank(training: Beside) -> None:
    assert training.refused(7).code == "RANK_NOT_RUNNING"
    known = training.backend.get_rank_exec(training.plan, training.handle, 0)
    training.backend.cancel(training.handle, 0.0)
    until(lambda: not training.lab.cluster.pods("task-x-1-node-*"), what="the pods are gone")
    with pytest.raises(BackendError, match="RANK_NOT_RUNNING"):
        known.dial()
    until(lambda: training.refused(0).code == "RANK_NOT_RUNNING", what="it is heard of")


def test_a_missing_permission_is_reported_with_the_api_servers_message(training: Beside) -> None:
    training.lab.cluster.server.access.deny("create", "pods/exec")
    error = training.refused(0)
    assert error.code == "ENGINE_FORBIDDEN"
    assert re.fullmatch(r'pods "task-x-1-node-\S+" is forbidden: ', str(error.params["why"]))
    training.lab.cluster.server.access.deny("get", "pods/exec")
    error = training.refused(0)
    assert error.code == "ENGINE_FORBIDDEN"
    assert 'cannot get resource "pods/exec"' in str(error.params["why"])


def test_a_dead_machine_is_reported_eventually(training: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    training.lab.cluster.kubelets.dead.add("machine-a")
    error = training.refused(0)
    assert error.code == "RANK_OUT_OF_REACH"
    assert "i/o timeout" in str(error.params["why"])
    training.lab.cluster.kubelets.dead.discard("machine-a")
    monkeypatch.setattr(rank_exec, "DIAL_SECONDS", 0.05)
    training.lab.cluster.server.execute = lambda *_: until(lambda: False, seconds=2)
    assert training.refused(0).code == "RANK_OUT_OF_REACH"


def test_older_clusters_use_protocol_v4(training: Beside) -> None:
    server = training.lab.cluster.server
    server.execution = (pod_exec.V4,)
    assert training.run(0, "echo", "there").out == "there\n"
    training.lab.cluster.kubelets.dead.add("machine-a")
    assert training.refused(0).code == "RANK_OUT_OF_REACH"


def test_a_program_that_cannot_start_gives_the_reason(training: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_exec, "EXEC_MODULE", "fermi.envd.nothing")
    error = training.refused(0)
    assert error.code == "RANK_OUT_OF_REACH"
    assert "No module named fermi.envd.nothing" in str(error.params["why"])


def test_a_container_without_our_runner_is_refused(lab: Lab, backend: KubernetesBackend) -> None:
    lab.cluster.script("task-x-1-node-*", Sleeps())
    spec = job()
    backend.submit(rendered(backend, spec))
    until(lambda: lab.cluster.pods("task-x-1-node-*"), what="its pod")
    one = Beside(lab, backend, rendered(backend, spec), handle(spec))
    until(lambda: one.refused(0).code == "RANK_OUT_OF_REACH", what="the pod runs")
    backend.cancel(handle(spec), 0.0)

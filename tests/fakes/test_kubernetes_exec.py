"""Dev pods: containers that stand apart, commands in them, and what becomes of both when a container, pod, node or API
server ends."""

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import watch

from tests.fakes.kubernetes import HOME, Runs
from tests.fakes.kubernetes.kubelet.containers import has_namespaces
from tests.fakes.pod_exec import V4, V5, Exec, RefusedError, run
from tests.polling import until
from tests.process_state import alive

NS = "fermi"
DETACHED = """
rm -f {0}/pid
setsid sh -c 'echo $$ > {0}/pid; exec sleep 600' > /dev/null 2>&1 < /dev/null &
until [ -s {0}/pid ]; do :; done
cat {0}/pid
"""
"""Begins a process as daemons are: in a session of its own, its parent gone."""


@pytest.fixture(params=["own", "mapped", ""], ids=["root's namespaces", "a user's namespaces", "no namespaces"])
def kubernetes(kubernetes, request):
    """With each kind of containers that this machine lets us have."""
    if not has_namespaces(request.param):
        pytest.skip("this machine gives no such namespaces")
    kubernetes.kubelets.namespaces = request.param
    kubernetes.add_node("node-a", gpus=8)
    return kubernetes


@pytest.fixture
def dev(kubernetes):
    """A dev pod that runs, with an empty folder of its pod's at /scratch."""
    return standing(kubernetes, "dev", empty_dirs=("/scratch",))


@pytest.fixture
def apart(kubernetes):
    if not kubernetes.kubelets.namespaces:
        pytest.skip("what takes namespaces")


def standing(kubernetes, name: str, namespace: str = NS, **more) -> dict:
    kubernetes.add_dev_pod(name, "node-a", real=True, namespace=namespace, **more)
    return until(lambda: ready(kubernetes, name, namespace), what=f"{name} runs")


def ready(kubernetes, name: str, namespace: str = NS) -> dict | None:
    (pod,) = kubernetes.pods(name, namespace)
    statuses = pod["status"].get("containerStatuses") or [{}]
    return pod if statuses[0].get("ready") else None


def container(kubernetes, name: str) -> dict:
    (pod,) = kubernetes.pods(name)
    return pod["status"]["containerStatuses"][0]


def restarted(kubernetes, pod: dict, **how) -> dict:
    """The pod, when another life of its container runs."""
    before = container(kubernetes, pod["metadata"]["name"])["restartCount"]
    kubernetes.kill_container(pod, **how)
    name = pod["metadata"]["name"]
    return until(lambda: container(kubernetes, name)["restartCount"] > before and ready(kubernetes, name))


def shell(kubernetes, pod: dict, text: str, **more) -> str:
    done = run(kubernetes, pod, "sh", "-c", text, **more)
    assert done.code == 0, (done.out, done.err)
    return done.out.decode()


def detached(kubernetes, pod: dict, folder: str = "/scratch"):
    """A detached process, as it is in the container and on this machine."""
    pid = int(shell(kubernetes, pod, DETACHED.format(folder)))
    return next(one for one in kubernetes.processes(pod) if one.inner == pid)


def test_a_command_runs_in_its_container_and_returns_its_exit_code(kubernetes, dev):
    """Words: staging/src/k8s.io/kubelet/pkg/cri/streaming/remotecommand/exec.go (ServeExec), containerd,
    internal/cri/server/streaming.go (Exec); of v5 staging/src/k8s.io/client-go/tools/remotecommand/v4.go."""
    done = run(kubernetes, dev, "sh", "-c", "echo no >&2; exit 3", protocol=V4)
    assert (done.out, done.err, done.code) == (b"", b"no\n", 3)
    assert done.status["message"] == (
        "command terminated with non-zero exit code: error executing command [sh -c echo no >&2; exit 3], exit code 3"
    )
    done = run(kubernetes, dev, "sh", "-c", "exit 3")
    assert done.status["message"] == ("command terminated with non-zero exit code: command terminated with exit code 3")
    with Exec(kubernetes, dev, "sh", "-c", "cat; exit 0") as stream:
        stream.write(b"x" * 300_000)
        stream.end_input()
        assert (stream.rest().code, len(stream.out), stream.closed) == (0, 300_000, True)


@pytest.mark.parametrize("protocol", [V4, V5])
def test_a_command_that_cannot_start_is_reported_by_the_runtime(kubernetes, dev, protocol):
    """opencontainers/runc, libcontainer/init_linux.go and standard_init_linux.go, wrapped by containerd,
    internal/cri/server/container_execsync.go; https://github.com/containerd/containerd/issues/3597 shows it."""
    shell(kubernetes, dev, "echo text > /scratch/plain")
    for name, why in (
        ("no-such-program", "executable file not found in $PATH"),
        ("/no/such/program", "stat /no/such/program: no such file or directory"),
        ("/scratch/plain", "permission denied"),
    ):
        done = run(kubernetes, dev, name, protocol=protocol)
        assert (done.status["reason"], done.status["code"]) == ("InternalError", 500)
        said = done.status["message"]
        assert said.count("Internal error occurred: ") == (1 if protocol == V4 else 2)
        assert f'failed: unable to start container process: exec: "{name}": {why}: unknown' in said
    assert "OCI runtime exec failed: exec failed: args must not be empty" in run(kubernetes, dev).status["message"]
    assert run(kubernetes, dev, "true", protocol=protocol).code == 0


def test_a_container_has_its_own_processes_name_and_files(kubernetes, apart, dev, tmp_path):
    """opencontainers/runtime-spec, config-linux.md: namespaces, default file systems and devices."""
    (tmp_path / "secret").write_text("of this machine")
    ours = shell(kubernetes, dev, "cat /proc/1/cmdline | tr '\\0' ' '; echo; readlink /proc/self/ns/pid")
    assert ours.startswith("sh -c trap")
    assert ours.splitlines()[1] != os.readlink("/proc/self/ns/pid")
    numbers = shell(kubernetes, dev, "ls /proc | grep -E '^[0-9]+$'").split()
    assert len(numbers) < 10
    assert "1" in numbers
    assert shell(kubernetes, dev, "cat /proc/sys/kernel/hostname; hostname -i; echo $HOME; pwd; ls /tmp").split() == [
        "dev", "127.0.0.1", HOME, "/",
    ]  # fmt: skip
    assert run(kubernetes, dev, "cat", str(tmp_path / "secret")).code == 1
    assert run(kubernetes, dev, "touch", "/sys/fs/cgroup/mine").code == 1
    shell(kubernetes, dev, "echo mine > /usr/mine; test ! -e /dev/kmsg; head -c 1 /dev/urandom > /dev/null")
    assert not Path("/usr/mine").exists()
    assert shell(kubernetes, dev, "python3 -c 'import sys, pytest; print(sys.version_info[:2])'")


def test_a_container_has_the_capabilities_of_containers(kubernetes, apart, dev):
    """containerd, pkg/oci/spec.go (defaultUnixCaps). Its root may make its processes more likely to be killed, and no
    less likely than they were begun (proc_pid_oom_score_adj(5))."""
    for line in shell(kubernetes, dev, "grep -E 'CapEff|CapBnd' /proc/self/status").splitlines():
        assert int(line.split()[1], 16) == 0xA80425FB
    assert (
        run(kubernetes, dev, "sh", "-c", "echo 300 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj").code == 0
    )
    assert run(kubernetes, dev, "sh", "-c", "echo -300 > /proc/self/oom_score_adj").code != 0


def test_a_detached_process_outlives_its_stream_and_ends_with_the_container(kubernetes, dev):
    """Its parent is then the container's first process (pid_namespaces(7)), or who stands in for it.
    https://github.com/kubernetes/kubernetes/issues/89031: the end of a stream ends no process."""
    one = detached(kubernetes, dev)
    assert alive(one.pid)
    if kubernetes.kubelets.namespaces:
        assert one.parent == 1
        assert one.inner != one.pid
    with Exec(kubernetes, dev, "sh", "-c", "echo on; exec sleep 600") as stream:
        stream.until(b"on")
        os.kill(kubernetes.processes(dev)[0].pid, signal.SIGKILL)
        assert stream.rest().code == 137
    until(lambda: container(kubernetes, "dev")["restartCount"] == 1 and ready(kubernetes, "dev"))
    assert not alive(one.pid)
    assert container(kubernetes, "dev")["lastState"]["terminated"]["exitCode"] == 137
    other = detached(kubernetes, dev)
    again = restarted(kubernetes, dev)
    assert not alive(other.pid)
    until(lambda: [found.command[0] for found in kubernetes.processes(again)] == ["sh", "sleep"])


def test_restarts_of_a_container_can_be_told_apart(kubernetes, dev):
    """By the start time of its first process, or, where that is everybody's, by a variable."""
    program = "open('/proc/1/stat').read().rpartition(')')[2].split()[19], __import__('os').environ.get('FERMI_LIFE')"
    lives = [shell(kubernetes, dev, f'python3 -c "print({program})"') for _ in range(2)]
    assert lives[0] == lives[1]
    again = restarted(kubernetes, dev)
    lives.append(shell(kubernetes, again, f'python3 -c "print({program})"'))
    assert lives[2] != lives[0]


def test_a_restart_discards_the_containers_layer_and_keeps_volumes(kubernetes, tmp_path):
    """https://kubernetes.io/docs/concepts/storage/volumes/: files in a container are lost when it crashes; an emptyDir
    is not, and goes with its pod."""
    (tmp_path / "claim").mkdir()
    kubernetes.add_claim("work", tmp_path / "claim")
    dev = standing(kubernetes, "dev", volumes={"/work": "work"}, empty_dirs=("/scratch",))
    shell(kubernetes, dev, 'for one in "$HOME" /work /scratch; do echo 1 > $one/file; done')
    assert (tmp_path / "claim/file").read_text() == "1\n"
    again = restarted(kubernetes, dev, reason="OOMKilled")
    assert shell(kubernetes, again, 'cd "$HOME" && ls') == ""
    assert shell(kubernetes, again, "cat /work/file /scratch/file") == "1\n1\n"
    if kubernetes.kubelets.namespaces:
        shell(kubernetes, again, "echo 1 > /tmp/file; echo 1 > /dev/shm/file")
        last = restarted(kubernetes, again)
        assert shell(kubernetes, last, "ls /tmp /dev/shm").split() == ["/dev/shm:", "file", "/tmp:"]


def test_a_home_may_be_a_volume(kubernetes, tmp_path):
    (tmp_path / "home").mkdir()
    kubernetes.add_claim("home", tmp_path / "home")
    dev = standing(kubernetes, "dev", volumes={HOME: "home"})
    shell(kubernetes, dev, 'echo 1 > "$HOME/file"')
    assert (tmp_path / "home/file").read_text() == "1\n"
    assert shell(kubernetes, restarted(kubernetes, dev), 'cat "$HOME/file"') == "1\n"


def test_a_read_only_root_file_system_allows_volumes(kubernetes, apart):
    """`readOnlyRootFilesystem`: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/."""
    mounts = [{"name": "scratch", "mountPath": "/scratch"}, {"name": "fixed", "mountPath": "/fixed", "readOnly": True}]
    main = {
        "name": "main", "image": "training:1", "command": ["sleep", "600"], "volumeMounts": mounts,
        "securityContext": {"readOnlyRootFilesystem": True},
    }  # fmt: skip
    volumes = [{"name": mount["name"], "emptyDir": {}} for mount in mounts]
    kubernetes.script("dev", Runs(apart=True))
    kubernetes.add_pod("dev", {"containers": [main], "volumes": volumes})
    dev = until(lambda: ready(kubernetes, "dev"))
    for folder in ("/tmp", HOME, "/usr", "/fixed", "/"):
        assert b"Read-only file system" in run(kubernetes, dev, "touch", f"{folder}/file").err
    assert run(kubernetes, dev, "touch", "/scratch/file").code == 0


def test_a_stream_stays_open_as_long_as_its_output(kubernetes, dev):
    """containerd, internal/cri/server/container_execsync.go (drainExecSyncIO): without a limit, its default."""
    with Exec(kubernetes, dev, "sh", "-c", "sleep 600 & echo $!") as stream:
        pid = int(stream.until(b"\n"))
        assert stream.status is None
        one = until(lambda: next((found for found in kubernetes.processes(dev) if found.inner == pid), None))
        os.kill(one.pid, signal.SIGKILL)
        assert stream.rest().code == 0


FOREGROUND = "echo $$; cat > /scratch/said; echo end > /scratch/ended; yes"


@pytest.mark.parametrize(("protocol", "how"), [(V5, "close"), (V5, "say_goodbye"), (V4, "say_goodbye")])
def test_a_disconnected_client_closes_the_commands_input_and_output(kubernetes, dev, protocol, how):
    """containerd, internal/cri/io/exec_io.go (Attach, `StdinOnce`) and cmd/containerd-shim-runc-v2/process/io.go
    (copyPipes, which holds both ends): the command is not killed by what it writes, but waits."""
    stream = Exec(kubernetes, dev, "sh", "-c", FOREGROUND, protocol=protocol)
    pid = int(stream.until(b"\n"))
    stream.write(b"last words")
    getattr(stream, how)()
    until(lambda: run(kubernetes, dev, "cat", "/scratch/ended").code == 0, what="its input has ended")
    assert shell(kubernetes, dev, "cat /scratch/said") == "last words"
    assert any(found.inner == pid for found in kubernetes.processes(dev))
    stream.close()


def test_v4_without_a_close_frame_ends_only_its_command(kubernetes, dev):
    """containerd, internal/cri/server/container_execsync.go (execInternal kills the process when its context ends)."""
    with Exec(kubernetes, dev, "sh", "-c", "sleep 600 & echo $$ $!; wait", protocol=V4) as stream:
        pids = [int(word) for word in stream.until(b"\n").split()]
        parent, child = (next(one for one in kubernetes.processes(dev) if one.inner == pid) for pid in pids)
    until(lambda: not alive(parent.pid), what="it is killed")
    assert alive(child.pid)


@pytest.mark.parametrize("protocol", [V4, V5])
def test_an_idle_stream_is_cut(kubernetes, dev, protocol):
    """After four hours; a ping is nothing: containerd, `stream_idle_timeout`; streamtranslator.go,
    defaultIdleConnectionTimeout."""
    with Exec(kubernetes, dev, "sh", "-c", "echo $$; cat; echo end > /scratch/ended", protocol=protocol) as stream:
        pid = int(stream.until(b"\n"))
        kubernetes.server.idle_seconds = 0.1
        stream.write(b"last words")
        assert stream.rest().cut
        kubernetes.server.idle_seconds = 600.0
        if protocol == V5:
            until(lambda: run(kubernetes, dev, "cat", "/scratch/ended").code == 0, what="its input has ended")
    until(lambda: not any(one.inner == pid for one in kubernetes.processes(dev)))


def test_deleting_a_pod_signals_only_its_first_process(kubernetes, clients, dev, tmp_path):
    """https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow: the runtime sends the
    stop signal to the main process of each container, and SIGKILL to what is left after the grace."""
    (tmp_path / "claim").mkdir()
    kubernetes.add_claim("work", tmp_path / "claim")
    listens = "trap 'echo asked > /work/{}; exit 5' TERM; echo on; while :; do sleep 1 & wait; done"
    other = standing(kubernetes, "other", volumes={"/work": "work"}, command=["sh", "-c", listens.format("first")])
    with Exec(kubernetes, other, "sh", "-c", listens.format("second")) as stream:
        stream.until(b"on")
        one = detached(kubernetes, other, "/work")
        clients.core.delete_namespaced_pod("other", NS)
        assert stream.rest().code == 137
    until(lambda: not kubernetes.pods("other"))
    assert not alive(one.pid)
    assert sorted(found.name for found in (tmp_path / "claim").iterdir()) == ["first", "pid"]


def test_a_first_process_that_ignores_sigterm_is_killed_after_the_grace(kubernetes, apart, clients):
    """A pid namespace's first process hears no signal that it does not handle, but SIGKILL and SIGSTOP from outside:
    pid_namespaces(7). So `sleep infinity` alone takes the whole grace."""
    deaf = standing(kubernetes, "deaf", command=["sleep", "infinity"])
    shell(kubernetes, deaf, "kill -KILL 1; kill 1; test -e /proc/1/stat")
    changes = watch.Watch().stream(clients.core.list_namespaced_pod, NS, timeout_seconds=60)
    clients.core.delete_namespaced_pod("deaf", NS, grace_period_seconds=1)
    seen = []
    for event in changes:
        statuses = event["object"].status.container_statuses
        ended = statuses[0].state.terminated if statuses else None
        seen.append((event["type"], ended and ended.exit_code))
        if event["type"] == "DELETED":
            break
    assert seen[-1] == ("DELETED", 137)


@pytest.mark.parametrize(("reason", "code"), [("OOMKilled", 137), ("Error", 1)])
def test_a_killed_container_is_replaced(kubernetes, dev, reason, code):
    """Its id, `restartCount` and `lastState`: pkg/kubelet/kuberuntime/kuberuntime_container.go (startContainer,
    toKubeContainerStatus) and pkg/kubelet/kubelet_pods.go (convertToAPIContainerStatuses)."""
    first = container(kubernetes, "dev")
    assert first["containerID"].startswith("containerd://")
    assert len(first["containerID"]) == len("containerd://") + 64
    for count in (1, 2, 3):
        before = container(kubernetes, "dev")["containerID"]
        restarted(kubernetes, dev, reason=reason, code=code)
        now = container(kubernetes, "dev")
        ended = now["lastState"]["terminated"]
        assert now["restartCount"] == count
        assert now["containerID"] != before
        assert (ended["containerID"], ended["reason"], ended["exitCode"]) == (before, reason, code)
        assert ended["startedAt"] <= ended["finishedAt"] <= now["state"]["running"]["startedAt"]
    assert kubernetes.pods("dev")[0]["status"]["phase"] == "Running"


def test_a_stream_ends_with_its_killed_container(kubernetes, dev):
    """The kernel kills all of a pid namespace with its first process (pid_namespaces(7)); 137 is 128 + SIGKILL."""
    with Exec(kubernetes, dev, "sh", "-c", "echo on; exec sleep 600") as stream:
        stream.until(b"on")
        kubernetes.kill_container(dev, "OOMKilled")
        stream.rest()
        assert stream.status["status"] == "Failure"
        assert (stream.status["reason"], stream.code) == ("NonZeroExitCode", 137)
        assert stream.closed


def test_a_stream_ends_with_its_evicted_pod(kubernetes, dev):
    """The pod has failed when nothing of it runs any more: pkg/kubelet/status/status_manager.go (mergePodStatus)."""
    one = detached(kubernetes, dev)
    with Exec(kubernetes, dev, "sh", "-c", "echo on; exec sleep 600") as stream:
        stream.until(b"on")
        kubernetes.evict(dev, "The node was low on resource: memory.")
        assert stream.rest().code == 137
    until(lambda: kubernetes.pods("dev")[0]["status"]["phase"] == "Failed")
    status = kubernetes.pods("dev")[0]["status"]
    assert (status["reason"], status["message"]) == ("Evicted", "The node was low on resource: memory.")
    assert "terminated" in status["containerStatuses"][0]["state"]
    assert "Evicted" in [event["reason"] for event in kubernetes.all("events")]
    assert not alive(one.pid)
    with pytest.raises(RefusedError) as refused:
        run(kubernetes, dev, "true", protocol=V4)
    assert (refused.value.code, refused.value.body) == (500, b'container not found ("dev")')
    said = run(kubernetes, dev, "true").status
    assert said["message"] == 'Internal error occurred: unable to upgrade connection: container not found ("dev")'
    kubernetes.server.kubelets_speak_v5 = True
    with pytest.raises(RefusedError) as refused:
        run(kubernetes, dev, "true")
    assert (refused.value.code, refused.value.body) == (500, b'container not found ("dev")')


def test_exec_permission_is_denied_by_namespace_and_verb(kubernetes, dev):
    """A WebSocket is a GET. Until 1.34 it takes the right to `get` pods/exec alone, from 1.35 on `create` as well:
    pkg/registry/core/pod/rest/subresources.go (ExecREST.Connect), pkg/features/kube_features.go
    (AuthorizePodWebsocketUpgradeCreatePermission). Words: staging/src/k8s.io/apiserver/pkg/endpoints/handlers/
    responsewriters/errors.go (forbiddenMessage) for the verb of the request; for `create` the authorizer's reason alone
    (pkg/registry/core/pod/rest/authorize.go), and RBAC gives none (plugin/pkg/auth/authorizer/rbac/rbac.go)."""
    access, server = kubernetes.access, kubernetes.server
    access.deny("*", "pods/exec", "elsewhere")
    access.deny("create", "pods/exec", NS)
    with pytest.raises(RefusedError) as refused:
        run(kubernetes, dev, "true")
    assert (refused.value.code, refused.value.status["reason"]) == (403, "Forbidden")
    assert refused.value.status["message"] == 'pods "dev" is forbidden: '
    server.websockets_create = False
    assert run(kubernetes, dev, "true").code == 0
    access.deny("get", "pods/exec", NS)
    with pytest.raises(RefusedError) as refused:
        run(kubernetes, dev, "true")
    assert refused.value.status["message"] == (
        'pods "dev" is forbidden: User "system:serviceaccount:fermi:fermi" cannot get resource "pods/exec" in API '
        'group "" in the namespace "fermi"'
    )


@pytest.mark.parametrize("kubelets_speak", [False, True], ids=["until 1.35", "from 1.36 on"])
def test_a_restart_of_the_api_server_cuts_streams_and_ends_no_other_process(kubernetes, clients, dev, kubelets_speak):
    """Streams go through it; who translates them (see `executing`) holds their commands. Kubelets and runtimes do not
    need it."""
    kubernetes.server.kubelets_speak_v5 = kubelets_speak
    one = detached(kubernetes, dev)
    before = container(kubernetes, "dev")
    stream = Exec(kubernetes, dev, "sh", "-c", "echo $$; cat; echo end > /scratch/ended; exec sleep 600")
    pid = int(stream.until(b"\n"))
    kubernetes.stop_api()
    stream.rest()
    assert (stream.cut, stream.closed, stream.status) == (True, False, None)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", kubernetes.server.port), 5)
    kubernetes.start_api()
    if kubelets_speak:
        until(lambda: run(kubernetes, dev, "cat", "/scratch/ended").code == 0, what="its input has ended")
    else:
        until(lambda: not any(found.inner == pid for found in kubernetes.processes(dev)), what="it is killed")
    with Exec(kubernetes, dev, "sh", "-c", "echo on; exec cat") as stream:
        stream.until(b"on")
        kubernetes.restart_api(0.1)
        assert stream.rest().cut
    assert container(kubernetes, "dev") == before
    assert clients.core.read_namespaced_pod("dev", NS).metadata.uid == dev["metadata"]["uid"]
    assert alive(one.pid)


def test_a_restart_of_the_kubelet_ends_commands_and_loses_its_pods_for_a_moment(kubernetes, dev):
    """pkg/kubelet/server/server.go (getExec) answers 404 until the kubelet has read its pods; that of the API server is
    a Status."""
    one = detached(kubernetes, dev)
    with Exec(kubernetes, dev, "sh", "-c", "echo $$; cat") as stream:
        pid = int(stream.until(b"\n"))
        kubernetes.restart_kubelet("node-a", refuses=2)
        assert stream.rest().cut
    with pytest.raises(RefusedError) as refused:
        run(kubernetes, dev, "true", protocol=V4)
    assert (refused.value.code, refused.value.status, refused.value.body) == (404, {}, b"pod does not exist")
    said = run(kubernetes, dev, "true").status
    assert said["message"] == "Internal error occurred: unable to upgrade connection: pod does not exist"
    assert run(kubernetes, dev, "true").code == 0
    until(lambda: not any(found.inner == pid for found in kubernetes.processes(dev)), what="it is killed")
    assert alive(one.pid)
    assert container(kubernetes, "dev")["restartCount"] == 0


def test_an_unresponsive_node_starts_nothing_and_its_streams_are_silent(kubernetes, dev):
    """What goes through the API server to a kubelet waits for a connection that nobody ends."""
    with Exec(kubernetes, dev, "sh", "-c", "echo on; cat") as stream:
        stream.until(b"on")
        kubernetes.nodes.evicts = False
        kubernetes.lose_node("node-a", processes_die=False)
        for protocol in (V4, V5):
            try:
                said = run(kubernetes, dev, "true", protocol=protocol).status
            except RefusedError as error:
                said = error.status
            assert said["message"].startswith("error dialing backend: ")
        stream.write(b"late")
        assert not select.select([stream.socket], [], [], 0.3)[0]
        kubernetes.restore_node("node-a")
        stream.until(b"late")


def test_a_dev_pod_may_be_in_any_namespace(kubernetes):
    kubernetes.add_namespace("research")
    ours, theirs = standing(kubernetes, "dev"), standing(kubernetes, "dev", "research", gpus=2)
    assert [shell(kubernetes, one, "echo $NVIDIA_VISIBLE_DEVICES").count("GPU-") for one in (ours, theirs)] == [0, 2]
    kubernetes.kill_container(theirs)
    until(lambda: kubernetes.pods("dev", "research")[0]["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert container(kubernetes, "dev")["restartCount"] == 0
    kubernetes.access.deny("*", "pods/exec", "research")
    assert run(kubernetes, ours, "true").code == 0
    with pytest.raises(RefusedError):
        run(kubernetes, theirs, "true")


def test_no_process_outlives_the_fake_cluster(kubernetes, tmp_path):
    """Also of a container that was begun again, by a thread that has ended since."""
    program = OUTLIVED.format(str(tmp_path / "cluster"), kubernetes.kubelets.namespaces)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        pids = [int(word) for word in other.stdout.readline().split()]
        assert len(pids) > 1
        assert all(map(alive, pids))
        other.kill()
    until(lambda: not any(map(alive, pids)))


OUTLIVED = """
import time
from pathlib import Path
from tests.fakes.kubernetes import FakeCluster

cluster = FakeCluster(Path({!r})).start()
cluster.kubelets.namespaces = {!r}
cluster.add_node("a")
pod = cluster.add_dev_pod("dev", "a", real=True)
first = set()
while len(found := {{one.pid for one in cluster.processes(pod)}} - first) < 2:
    if found and not first:
        first = found
        cluster.kill_container(pod)
    time.sleep(0.01)
print(*found, flush=True)
time.sleep(600)
"""

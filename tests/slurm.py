"""A real Slurm on this machine: munged, slurmctld, two slurmd and slurmrestd of Debian's packages, in a folder of their
own, on the loopback interface, as root. Ready in about a second.

Its nodes n1 and n2 have sixteen CPUs and two GPUs each, which are character devices that every Linux has.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.clean_environment import umask
from tests.platform_process import free_port
from tests.polling import until

NODES = ("n1", "n2")
NOBODY = 65534
CONF = """
ClusterName=fermi
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n/pid
SlurmctldPidFile={folder}/state/pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout={patience}
InactiveLimit=0
KillWait=2
MinJobAge=300
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
"""


def why_not() -> str:
    """What is missing to run it here; empty = nothing."""
    programs = ("munged", "slurmctld", "slurmd", "slurmrestd", "sbatch", "squeue", "scancel", "setpriv")
    missing = [name for name in programs if not shutil.which(name)]
    if not any(Path("/usr/lib").glob("*/slurm*/auth_jwt.so")):
        missing.append("auth_jwt.so")
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: slurm-wlm slurmrestd slurm-wlm-jwt-plugin munge)"
    if os.getuid() != 0:
        return "Slurm's daemons need root"
    try:
        socket.getaddrinfo(socket.gethostname().split(".")[0], None)
    except OSError as error:
        return f"slurmd binds to this machine's name, which does not resolve: {socket.gethostname()} ({error.strerror})"
    return ""


class Slurm:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fermi-slurm-", dir="/tmp"))
        self.folder.chmod(0o755)  # slurmrestd refuses to be root, and sockets want short paths
        self.env = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.ports = {name: free_port() for name in ("controller", "rest", *NODES)}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    # Its life --------------------------------------------------------------------------------------------------

    @umask(0o022)
    def start(self) -> "Slurm":
        for name in ("munge", "state", "rest", *NODES):
            (self.folder / name).mkdir()
        for key in ("munge/key", "jwt.key"):
            (self.folder / key).write_bytes(os.urandom(64))
            (self.folder / key).chmod(0o400)
        self.configure()
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # never looked for: nothing uses it
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        at = self.folder / "munge"
        self.start_program("munged", ["munged", "--foreground", f"--socket={at}/socket", f"--key-file={at}/key",
                              f"--pid-file={at}/pid", f"--seed-file={at}/seed", f"--log-file={at}/log"])  # fmt: skip
        until((at / "socket").exists, what="munged listens")
        self.begin_controller("-i")
        for node in NODES:
            self.begin_node(node)
        self.begin_rest()
        until(self.is_ready, what="Slurm's nodes are idle")
        return self

    @umask(0o022)
    def configure(self, patience: int = 300) -> None:
        host = socket.gethostname().split(".")[0]
        lines = [CONF.format(host=host, folder=self.folder, controller=self.ports["controller"], patience=patience)]
        lines += [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.ports[node]} CPUs=16 CoresPerSocket=16"
            " RealMemory=64000 Gres=gpu:2 Feature=fast State=UNKNOWN"
            for node in NODES
        ]
        lines += [f"PartitionName=main Nodes={','.join(NODES)} Default=YES MaxTime=1:00:00 State=UP",
                  f"PartitionName=urgent Nodes={','.join(NODES)} PriorityTier=10 State=UP"]  # fmt: skip
        (self.folder / "slurm.conf").write_text("\n".join(lines) + "\n")

    @umask(0o022)
    def start_program(self, name: str, command: Sequence[str], **env: str) -> None:
        with open(self.folder / f"{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(
                command, env={**self.env, **env}, stdout=out, stderr=out, cwd=self.folder, start_new_session=True
            )

    def begin_controller(self, *flags: str) -> None:
        self.start_program("slurmctld", ["slurmctld", "-D", *flags])

    def begin_node(self, node: str) -> None:
        self.start_program(node, ["slurmd", "-D", "-N", node])

    def begin_rest(self) -> None:
        as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        os.chown(self.folder / "rest", NOBODY, NOBODY)
        where = [f"127.0.0.1:{self.ports['rest']}", f"unix:{self.folder}/rest/socket"]
        self.start_program("slurmrestd", [*as_nobody, "slurmrestd", "-a", "rest_auth/jwt", "-s", "openapi/v0.0.38",
                   *where], SLURM_JWT="daemon")  # fmt: skip

    def is_ready(self) -> bool:
        if dead := [name for name, daemon in self.daemons.items() if daemon.poll() is not None]:
            raise AssertionError("\n".join(f"{name} ended: {self.read_log(name)}" for name in dead))
        states = self.command("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T", check=False)
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.ports["rest"])):
            return states.split() == ["idle"] * len(NODES)
        return False

    def kill(self, name: str) -> None:
        self.daemons[name].kill()
        self.daemons[name].wait()

    def forget_everything(self) -> None:
        """A controller that lost its state: jobs, and which number comes next."""
        self.kill("slurmctld")
        shutil.rmtree(self.folder / "state")
        (self.folder / "state").mkdir()
        self.begin_controller("-i")
        until(self.answers, what="slurmctld answers")

    def save(self, job_id: int) -> None:
        """Until the controller has written down what it knows of a job: it does so some seconds after a change."""
        file = self.folder / "state" / "job_state"
        before = file.stat().st_mtime_ns if file.exists() else 0
        self.command("scontrol", "update", f"JobId={job_id}", "TimeLimit=50")
        until(lambda: file.exists() and file.stat().st_mtime_ns > before, what="the controller's state is saved")

    def restart_controller(self) -> None:
        self.kill("slurmctld")
        self.begin_controller()
        until(self.answers, what="slurmctld answers")

    def answers(self) -> bool:
        return "UP" in self.command("scontrol", "ping", check=False)

    def restore(self) -> None:
        """No job, and all nodes there again: what a test did to it is over."""
        if self.daemons["slurmctld"].poll() is not None:
            self.begin_controller()
        until(self.answers, what="slurmctld answers")
        for node in NODES:
            if self.daemons[node].poll() is not None:
                self.begin_node(node)
            self.command("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        self.command("scancel", "--user=root", check=False)
        until(self.is_ready, what="Slurm's nodes are idle again")

    def close(self) -> None:
        if self.answers():
            self.command("scancel", "--user=root", check=False)
            with suppress(AssertionError):
                until(lambda: not self.command("squeue", "--noheader", check=False), seconds=15)
        for name in reversed(self.daemons):
            self.daemons[name].terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self.strays():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def strays(self) -> list[int]:
        """Processes of jobs and of their slurmstepd, by the configuration that they were given."""
        mark, found = f"SLURM_CONF={self.folder}/".encode(), []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with suppress(OSError):
                    if mark in Path(f"/proc/{name}/environ").read_bytes():
                        found.append(int(name))
        return found

    # What tests do with it -------------------------------------------------------------------------------------

    def command(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not check, f"{words}: {done.stderr}"
        return done.stdout

    def allocate(self, machine: str, comment: str = "fermi", *options: str) -> int:
        """The number of a job that holds the machine's processors and GPUs, as somebody's own allocation does."""
        asked = [f"--nodelist={machine}", "--cpus-per-task=16", "--gres=gpu:2", f"--comment={comment}", *options]
        number = int(
            self.command("sbatch", "--parsable", "--output=/dev/null", "--no-requeue", *asked, "--wrap=sleep 3600")
        )
        state = ("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={number}")
        until(lambda: self.command(*state).strip() == "RUNNING", what=f"the allocation {number} runs")
        return number

    def read_log(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(errors="replace")[-2000:]

    @cached_property
    def connection(self) -> dict[str, Any]:
        """Through slurmrestd, with tokens made from Slurm's key."""
        url = f"http://127.0.0.1:{self.ports['rest']}"
        return {"url": url, "user": "root", "key_file": str(self.folder / "jwt.key")}

    @cached_property
    def commands(self) -> dict[str, Any]:
        """Through sbatch and its like."""
        return {"conf": str(self.folder / "slurm.conf")}


@contextmanager
def started() -> Iterator[Slurm]:
    """Skips the test where it cannot run."""
    if why := why_not():
        pytest.skip(why)
    slurm = Slurm()
    try:
        yield slurm.start()
    finally:
        slurm.close()

"""Finds out what a node of an attempt is made of: its kernel, processor, driver and GPUs, the variables of its ranks,
and the script that they run. Standard library only, Python 3.9 or later.

    {"facts": {"kernel": "5.15.0-91-generic", "cpu": "AMD EPYC 7763", "cores": 128, "driver": "550.54.15", "gpus": {…}}}
    {"facts": {"script": {"path": "train.py", "sha256": "…"}, "git": {"commit": "…", "branch": "main"}}}
    {"facts": {"variables": {"NCCL_DEBUG": "5f2b…", "HF_TOKEN": ""}, "part": 0, "parts": 2, "key": "1f-18c"}}

What the ranks' interpreter is and what is installed for it, their probe reports (`fermi.probe.facts`). All is read from
files, in one thread, once the ranks run: a network file system may block, and must not block the runner.

Of a variable the name is reported, with a hash of name and value; of one that may be a secret, the name alone. The
task's own name and folder in a value are replaced, the home folder, and the ranks' virtual environment: they would
differ in each run, on each node, or with each package.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

FINISH_SECONDS = 2.0
MAX_VARIABLES, MAX_NAME_LENGTH, MAX_VALUE_LENGTH, VARIABLES_PER_RECORD = 500, 100, 100_000, 20
MAX_GPU_KINDS, MAX_TEXT_LENGTH, MAX_PATH_LENGTH = 16, 100, 300
MAX_SCRIPT_BYTES, MAX_FILE_BYTES, MAX_PARENT_FOLDERS = 4 << 20, 1 << 20, 12
HASH_DIGITS = 16
SCRIPT_SUFFIXES = (".py", ".sh", ".bash")
DRIVER_FILE, GPU_GLOB = "/proc/driver/nvidia/version", "/proc/driver/nvidia/gpus/*/information"
AMD_DRIVER_FILE = "/sys/module/amdgpu/version"
_DRIVER = re.compile(r"Kernel Module\D*(?:x86_64|aarch64)?\s+(\d+\.\d+(?:\.\d+)*)")
_GPU_MODEL = re.compile(r"^Model:\s*(.+)$", re.MULTILINE)
_CPU_MODEL = re.compile(r"^(?:model name|Model)\s*:\s*(.+)$", re.MULTILINE)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|PRIVATE|COOKIE|SESSION|DSN", re.IGNORECASE)
_ADDRESS_WITH_PASSWORD = re.compile(r"://[^/\s:@]{0,200}:[^/\s@]{1,500}@")
_OF_ONE_RUN = re.compile(
    r"FERMI_.*|_|PWD|OLDPWD|SHLVL|HOSTNAME|RANK|LOCAL_RANK|NODE_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_.*|ROLE_.*"
    r"|TORCHELASTIC_.*|NCCL_RAS_ADDR|CUDA_VISIBLE_DEVICES|HOME|VIRTUAL_ENV"
    r"|MASTER_(?:ADDR|PORT)|SLURM.*|SRUN_.*|PMIX?_.*|OMPI_.*|KUBERNETES_.*|.*_SERVICE_(?:HOST|PORT.*)"
    r"|.*_PORT_\d+_(?:TCP|UDP).*|.*_PORT|TORCH_NCCL_DEBUG_INFO.*|INVOCATION_ID|JOURNAL_STREAM|XDG_.*|SSH_.*|TERM"
)
"""Names of variables that the platform, the engine and the shell set for each run anew, or that follow from the ranks'
packages: a prepared environment has a folder of its own for each list of packages."""


class NodeFacts:
    """The thread. `spec`: the node's; `env`: the variables of its first rank."""

    def __init__(self, spec: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self._spec, self._env = spec, dict(env)
        self._records: deque[dict[str, Any]] = deque()
        self._thread = threading.Thread(target=self._run, name="node facts", daemon=True)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], env: Mapping[str, str]) -> NodeFacts | None:
        """Return the facts of a node of a watched task; of several runners on a node that of the first rank has them.
        None for all others."""
        is_first = any(rank.get("local_rank") == 0 for rank in spec["ranks"])
        return cls(spec, env) if spec.get("pulse") and is_first and "FERMI_TASK_ID" in env else None

    def start(self) -> None:
        """Start to read. Call it once the ranks run: they are forked from this process."""
        self._thread.start()

    def pop_records(self) -> list[dict[str, Any]]:
        """Return the records since the last call."""
        return [self._records.popleft() for _ in range(len(self._records))]

    def finish(self) -> list[dict[str, Any]]:
        """Return the remaining records. A file system that blocks is waited for FINISH_SECONDS."""
        if self._thread.is_alive():
            self._thread.join(FINISH_SECONDS)
        return self.pop_records()

    def _run(self) -> None:
        try:
            self._records.append({"facts": describe_machine()})
            hidden = self._spec.get("secrets", ())
            found = hash_variables(self._env, hidden, self._spec["name"], self._spec["cwd"])
            self._records.extend({"facts": part} for part in split_variables(found))
            if "code" not in self._spec:
                self._records.append({"facts": describe_script(self._spec["command"], self._spec["cwd"])})
        except Exception as error:  # it is no part of the training
            print(f"fermi: the facts of this node are not known: {error!r}", flush=True)


def describe_machine() -> dict[str, Any]:
    """Return what is known of the machine; what it does not show is left out."""
    found: dict[str, Any] = {"kernel": os.uname().release, "cores": len(os.sched_getaffinity(0))}
    if cpu := _CPU_MODEL.search(_read_text("/proc/cpuinfo")):
        found["cpu"] = " ".join(cpu[1].split())
    if driver := _DRIVER.search(_read_text(DRIVER_FILE)):
        found["driver"] = driver[1]
    elif driver_text := _read_text(AMD_DRIVER_FILE).strip():
        found["driver"] = driver_text
    models = (_GPU_MODEL.search(_read_text(path)) for path in sorted(glob.glob(GPU_GLOB)))
    counts = Counter(" ".join(model[1].split())[:MAX_TEXT_LENGTH] for model in models if model)
    if counts:
        found["gpus"] = dict(counts.most_common(MAX_GPU_KINDS))
    return {name: value[:MAX_TEXT_LENGTH] if isinstance(value, str) else value for name, value in found.items()}


def hash_variables(env: Mapping[str, str], hidden: Iterable[str], name: str, cwd: str) -> dict[str, str]:
    """Return the variables that a user or an administrator has set, by name, at most MAX_VARIABLES: a hash of name and
    value, empty for a secret. `hidden`: names of secrets; `name`: the attempt's; `cwd`: the folder of its ranks."""
    secrets, found = set(hidden), dict[str, str]()
    task, home = name.rpartition("-")[0] or name, env.get("HOME") or cwd
    home = home if len(home) > 1 else cwd
    own = env.get("VIRTUAL_ENV", "").rstrip("/") or f"{cwd}/.venv"
    for variable in sorted(env):
        if len(variable) > MAX_NAME_LENGTH or not variable.isascii() or _OF_ONE_RUN.fullmatch(variable):
            continue
        value = str(env[variable])[:MAX_VALUE_LENGTH]
        if variable in secrets or _SECRET.search(variable) or _ADDRESS_WITH_PASSWORD.search(value):
            found[variable] = ""
        else:
            if variable == "PATH":
                value = os.pathsep.join(one for one in value.split(os.pathsep) if one != f"{own}/bin")
            plain = value.replace(own, "{venv}").replace(cwd, "{cwd}").replace(home, "{home}")
            plain = plain.replace(name, "{run}").replace(task, "{task}")
            digest = hashlib.sha256(f"{variable}\0{plain}".encode(errors="surrogateescape"))
            found[variable] = digest.hexdigest()[:HASH_DIGITS]
        if len(found) >= MAX_VARIABLES:
            break
    return found


def split_variables(found: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the variables in parts that each fit into a record."""
    names = sorted(found)
    pieces = [names[at : at + VARIABLES_PER_RECORD] for at in range(0, len(names), VARIABLES_PER_RECORD)] or [[]]
    key = f"{os.getpid():x}-{int(time.time() * 1000):x}"
    return [
        {"variables": {name: found[name] for name in piece}, "part": place, "parts": len(pieces), "key": key}
        for place, piece in enumerate(pieces)
    ]


def describe_script(command: Iterable[object], cwd: str) -> dict[str, Any]:
    """Return the script that a command runs, and the revision of its folder if Git knows one. Empty where the command
    names no file that exists."""
    for word in command:
        if not isinstance(word, str) or not word.endswith(SCRIPT_SUFFIXES) or word.startswith("-"):
            continue
        path = os.path.join(cwd, word)
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_SCRIPT_BYTES)
        except OSError:
            continue
        script = {"path": word[-MAX_PATH_LENGTH:], "sha256": hashlib.sha256(content).hexdigest()}
        git = find_revision(os.path.dirname(os.path.realpath(path)))
        return {"script": script, "git": git} if git else {"script": script}
    return {}


def find_revision(folder: str) -> dict[str, str]:
    """Return the `commit` and the `branch` that are checked out in a folder or above it; empty if none are."""
    for _ in range(MAX_PARENT_FOLDERS):
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return _read_head(git)
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    return {}


def _read_head(git: str) -> dict[str, str]:
    head = _read_text(os.path.join(git, "HEAD")).strip()
    if not head.startswith("ref: "):
        return {"commit": head} if re.fullmatch(r"[0-9a-f]{40,64}", head) else {}
    name = head[len("ref: ") :]
    commit = _read_text(os.path.join(git, *name.split("/"))).strip() if ".." not in name else ""
    if not commit:
        packed = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(name)}$", _read_text(f"{git}/packed-refs"), re.MULTILINE)
        commit = packed[1] if packed else ""
    branch = name[len("refs/heads/") :] if name.startswith("refs/heads/") else name
    known = re.fullmatch(r"[0-9a-f]{40,64}", commit)
    return {"commit": commit, "branch": branch[:MAX_TEXT_LENGTH]} if known else {}


def _read_text(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read(MAX_FILE_BYTES)
    return ""

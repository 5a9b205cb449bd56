"""Check whether a Slurm cluster can train: reachable, new enough, its partition up, GPUs on its nodes, and a data
directory that can be written to."""

import getpass
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fermi.engines import certificates as launch_endings
from fermi.engines import connection_options
from fermi.engines.certificates import CredentialExpiry, CredentialKind
from fermi.engines.check_results import CheckLevel, CheckResult
from fermi.engines.slurm import sandbox
from fermi.engines.slurm.access import create_driver, get_user
from fermi.engines.slurm.commands import SlurmCommands
from fermi.engines.slurm.driver import SlurmDriver, SlurmMachine
from fermi.engines.slurm.render import get_data_root
from fermi.jobs import bounds
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Problem
from fermi.messages import NestedText

MIN_VERSION = (21, 8)
BAD_NODE_STATES = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "NOT_RESPONDING", "ERROR"})
_GRES = re.compile(r"([a-z_]+):(?:([\w.-]+):)?(\d+)", re.IGNORECASE)

_TEXT = {"type": "string", "pattern": r"^[^\r\n]+$"}
_PATH = {"type": "string", "pattern": r"^/[^\r\n]*$"}
_WORDS = {"type": "array", "items": _TEXT}
_PATHS = {"type": "array", "items": _PATH}
CONNECTION = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "offline": {"type": "boolean"},
        "url": {"type": "string", "pattern": r"^(https?://[^/\s]+|unix:/\S+)$", "description": "slurmrestd"},
        "user": {**_TEXT, "description": "whose jobs they are"},
        "token_file": {**_PATH, "description": "a file with a JWT on the platform's hosts"},
        "key_file": {**_PATH, "description": "Slurm's jwt_hs256.key on the platform's hosts"},
        "ca_file": _PATH,
        "bin": {**_PATH, "description": "folder of sbatch, squeue and scancel, where there is no slurmrestd"},
        "conf": {**_PATH, "description": "slurm.conf for these"},
        "folder": {**_PATH, "description": "the platform's data directory as the nodes see it"},
        "workspace": {**_PATH, "description": "folder of relative scripts, as the nodes see it"},
        "python": {**_TEXT, "description": "interpreter on the nodes"},
        "partition": connection_options.build_option_schema(_TEXT),
        "account": connection_options.build_option_schema(_TEXT),
        "qos": connection_options.build_option_schema(_TEXT),
        "nice": connection_options.build_class_schema(
            {"type": "integer", "minimum": -2147483645, "maximum": 2147483645},
            "what is taken off a job's priority in Slurm; below 0 only for Slurm's operators",
        ),
        "reservation": _TEXT,
        "constraint": _TEXT,
        "time_limit": {"type": "string", "pattern": r"^(\d+-)?\d+(:\d+){0,2}$", "description": "as in sbatch"},
        "mem": {"type": "string", "pattern": r"^\d+[KMGT]?$", "description": "per node; 0 = all of it"},
        "gres": {**_TEXT, "description": "what a GPU is called; default `gpu`"},
        "options": {
            "type": "object",
            "additionalProperties": {"type": ["string", "integer", "boolean"]},
            "description": "other long options of sbatch",
        },
        "modules": {**_WORDS, "description": "`module load` on the nodes"},
        "conda": {**_TEXT, "description": "`conda activate` on the nodes"},
        "setup": {"type": "array", "items": {"type": "string"}, "description": "lines of shell before the job"},
        "container": {
            "type": "object",
            "additionalProperties": False,
            "required": ["runtime"],
            "properties": {"runtime": {"enum": ["pyxis", "apptainer"]}, "image": _TEXT, "mounts": _WORDS},
        },
        "node_cache_dir": {
            "type": "string",
            "pattern": r"^(/(?!\.{1,2}(/|$))[^/\r\n]+)+/?$",
            "maxLength": 500,
            "description": "folder of the nodes' own disks for compiled kernels, below it one for each project",
        },
        "bounds": bounds.BOUNDS_SCHEMA,
        "discover": {"type": "boolean", "description": "true: allocations that users offer are environments"},
        "confine": {"type": "boolean", "description": "false: nodes keep ranks from nothing"},
        "reads": {**_PATHS, "description": "further folders of the nodes that every task may read"},
        "writes": {**_PATHS, "description": "further folders of the nodes that every task may write to"},
    },
}
OPTION_PATTERN = "^[a-z][a-z-]+$"
"""Name of a long option of sbatch, without its dashes."""


def contradictions(connection: Mapping[str, Any]) -> list[Problem]:
    """Return options of sbatch that have no such name, and a slurmrestd without a token. A Unix socket may know its
    user by itself (`rest_auth/local`)."""
    found = [
        _build_problem(f"options.{name}", name, NestedText("NOT_ALIKE", {"pattern": OPTION_PATTERN}))
        for name in connection.get("options", {})
        if not re.search(OPTION_PATTERN, name)
    ]
    if connection.get("url", "unix:").startswith("unix:") or connection.keys() & {"token_file", "key_file"}:
        return found
    return [*found, _build_problem("token_file", "token_file", NestedText("FIELD_REQUIRED"))]


def _build_problem(field: str, found: str, why: NestedText) -> Problem:
    return Problem(f"connection.{field}", "CONNECTION_INVALID", {"found": found, "why": why})


def findings(connection: Mapping[str, Any]) -> list[CheckResult]:
    """Return the results of all checks; those of a cluster that does not answer say why."""
    asked = create_driver(connection)
    where = str(connection.get("url") or "scontrol")
    try:
        version = asked.version()
        found = [CheckResult(CheckLevel.PASS, "SLURM_REACHABLE", {"where": where}), _check_version(version)]
        found += [*_check_partitions(asked, connection), *_check_machines(asked.machines(), connection)]
    except BackendError as error:
        return [CheckResult(CheckLevel.FAIL, error.code, error.params), _check_folder(connection)]
    return [*found, *_check_entry(connection), _check_folder(connection), check_rank_user(connection)]


def _check_entry(connection: Mapping[str, Any]) -> list[CheckResult]:
    """Return a warning where srun is missing: allocations are discovered in any case, and can be trained in only by
    steps."""
    if connection.get("discover"):
        try:
            SlurmCommands(connection).program("srun")
        except BackendError as error:
            return [CheckResult(CheckLevel.WARN, error.code, error.params)]
    return []


def check_rank_user(connection: Mapping[str, Any]) -> CheckResult:
    """Return what keeps ranks from files that are not theirs: the nodes, unless the connection turns that off, and
    Slurm's user."""
    ours, theirs = getpass.getuser(), get_user(connection)
    params = {"user": theirs, "path": str(Path(connection.get("data_dir") or "var").resolve())}
    confined = sandbox.is_confined(connection)
    if theirs in (ours, "root"):
        code = "SLURM_RANKS_CONFINED_AS_PLATFORM" if confined else "SLURM_RANKS_UNCONFINED"
        return CheckResult(CheckLevel.WARN, code, params)
    return CheckResult(CheckLevel.PASS, "SLURM_RANKS_CONFINED" if confined else "SLURM_RANKS_OF_ANOTHER_USER", params)


def endings(connection: Mapping[str, Any]) -> list[CredentialExpiry]:
    """Return until when the credentials are valid. Tokens that are made from a key are new each time. Raise
    BackendError."""
    named: tuple[tuple[CredentialKind, str], ...] = (("token", "token_file"), ("authority", "ca_file"))
    found: list[CredentialExpiry] = []
    try:
        for kind, name in named:
            if path := connection.get(name):
                content = Path(path).read_bytes().removeprefix(b"SLURM_JWT=")
                found += launch_endings.read_expiries(kind, path, content)
    except OSError as error:
        raise BackendError("SLURM_TOKEN_UNREADABLE", path=str(error.filename), why=str(error.strerror)) from error
    return found


def _check_version(version: str) -> CheckResult:
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    params = {"version": version, "least": ".".join(f"{part:02}" for part in MIN_VERSION)}
    return CheckResult(CheckLevel.PASS, "SLURM_VERSION", params) if number >= MIN_VERSION else CheckResult(
        CheckLevel.FAIL, "SLURM_TOO_OLD", params
    )  # fmt: skip


def _list_partitions(connection: Mapping[str, Any]) -> list[str]:
    """Return the partitions that tasks may be sent to."""
    names = [
        name
        for value in connection_options.list_option_values(connection.get("partition"))
        for name in value.split(",")
    ]
    return list(dict.fromkeys(name for name in names if name))


def _check_partitions(driver: SlurmDriver, connection: Mapping[str, Any]) -> Iterator[CheckResult]:
    known = driver.partitions()
    wanted = _list_partitions(connection)
    params = {"partitions": ", ".join(sorted(known)) or "-"}
    for name in wanted or known:
        if name not in known:
            yield CheckResult(CheckLevel.FAIL, "PARTITION_MISSING", {**params, "partition": name})
        elif not known[name]:
            remedy = f"scontrol update PartitionName={name} State=UP"
            yield CheckResult(CheckLevel.WARN, "PARTITION_DOWN", {**params, "partition": name}, remedy)
        elif wanted:
            yield CheckResult(CheckLevel.PASS, "PARTITION_UP", {**params, "partition": name})
    if not wanted:
        yield CheckResult(CheckLevel.PASS, "PARTITIONS_FOUND", params)


def _check_machines(machines: list[SlurmMachine], connection: Mapping[str, Any]) -> Iterator[CheckResult]:
    wanted = set(_list_partitions(connection))
    ours = [one for one in machines if not wanted or wanted & set(one.partitions)]
    bad = [one for one in ours if one.states & BAD_NODE_STATES]
    if bad:
        text = ", ".join(f"{one.name} ({one.reason or '+'.join(sorted(one.states))})" for one in bad)
        remedy = f"scontrol update NodeName={','.join(one.name for one in bad)} State=RESUME"
        yield CheckResult(CheckLevel.WARN, "NODES_NOT_READY", {"nodes": text, "ready": len(ours) - len(bad)}, remedy)
    counts: Counter[str] = Counter()
    for one in ours:
        for name, kind, count in _GRES.findall(one.gres):
            counts[f"{name}:{kind}" if kind else name] += int(count)
    if counts:
        text = ", ".join(f"{name} × {count}" for name, count in sorted(counts.items()))
        yield CheckResult(CheckLevel.PASS, "GPUS_FOUND", {"gpus": text, "nodes": len(ours)})
    else:
        yield CheckResult(CheckLevel.WARN, "SLURM_GPUS_NOT_FOUND", {"nodes": len(ours)})


def _check_folder(connection: Mapping[str, Any]) -> CheckResult:
    """Return whether the data directory can be written to from here; whether the nodes have it at that path, a first
    task shows."""
    here = Path(connection.get("data_dir") or "var").resolve()
    there = next(folder for folder in (here, *here.parents) if folder.exists())
    params = {"path": str(here), "folder": get_data_root({"data_dir": str(here), **connection})}
    if os.access(there, os.W_OK | os.X_OK):
        return CheckResult(CheckLevel.PASS, "SHARED_FOLDER_USABLE", params)
    return CheckResult(CheckLevel.FAIL, "FOLDER_UNUSABLE", params, f"chmod u+rwx {there}")

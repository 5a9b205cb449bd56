"""slurmrestd as a driver: over TCP, TLS or a Unix socket, with a JWT; which version of its API it serves is asked once.

Errors come as `errors[]` in the body, with any status: a refusal as 500, a request that was accepted with a remark as
200.
"""

import base64
import getpass
import hashlib
import hmac
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fermi.engines.certificates import read_jwt_claims
from fermi.engines.slurm import driver
from fermi.engines.slurm.components import parse_megabytes, parse_minutes
from fermi.engines.slurm.driver import SlurmJob, SlurmMachine, SlurmSubmission
from fermi.engines.slurm.rejections import UNKNOWN_JOB_ERRORS, SlurmRejectedError, build_rejection
from fermi.jobs.errors import BackendError

TIMEOUT_SECONDS = 30.0
TOKEN_SECONDS = 600
MIN_TYPED_VERSION = 39
"""From this version on requests are typed as Slurm's own structures; before, they were sbatch's options."""
AUTHENTICATION_ERRORS = frozenset({1007, *range(6000, 6100)})
UNREACHABLE_ERRORS = frozenset({-1, *range(1000, 1007), *range(1800, 1900), *range(5000, 5100)})
"""Slurm's error numbers of a controller that cannot be reached, rather than of a request. Some versions give no more
than -1, also when the controller does not accept the token."""


class SlurmRestClient:
    """Driver that uses slurmrestd."""

    max_single_queries = 4

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.url = str(connection["url"])
        self.user = str(connection.get("user") or getpass.getuser())
        self._token_file, self._key_file = connection.get("token_file"), connection.get("key_file")
        self._ca_file = connection.get("ca_file")
        self._number = 0

    # Methods of the driver ----------------------------------------------------------------------------------------

    def version(self) -> str:
        answer = self._ask("GET", "ping")
        meta = answer.get("meta") or {}
        about = meta.get("Slurm") or meta.get("slurm") or {}
        if not any(ping.get("ping") == "UP" or ping.get("responding") for ping in answer.get("pings") or ()):
            raise BackendError("SLURM_UNREACHABLE", why="slurmctld does not answer slurmrestd", where=self.url)
        return str(about.get("release") or "")

    def jobs(self) -> list[SlurmJob]:
        return [driver.parse_job(row) for row in self._ask("GET", "jobs")["jobs"]]

    def job(self, job_id: int) -> list[SlurmJob]:
        try:
            return [driver.parse_job(row) for row in self._ask("GET", f"job/{job_id}").get("jobs") or ()]
        except SlurmRejectedError as refused:
            if refused.number in UNKNOWN_JOB_ERRORS:
                return []
            raise

    def submit(self, submission: SlurmSubmission) -> int:
        version = self._version()
        describe = _build_typed_fields if version >= MIN_TYPED_VERSION else _build_option_fields
        parts = [describe(options, submission) for options in submission.components]
        one = {"job": parts[0]} if len(parts) == 1 else {"jobs": parts}
        answer = self._ask("POST", "job/submit", {"script": submission.script, **one})
        return int(answer.get("job_id") or 0)

    def cancel(self, job_id: int) -> None:
        try:
            self._ask("DELETE", f"job/{job_id}")
        except SlurmRejectedError as refused:
            if refused.number not in UNKNOWN_JOB_ERRORS:
                raise

    def partitions(self) -> dict[str, bool]:
        return {str(row["name"]): _is_up(row) for row in self._ask("GET", "partitions")["partitions"]}

    def machines(self) -> list[SlurmMachine]:
        return [driver.parse_machine(row) for row in self._ask("GET", "nodes")["nodes"]]

    # Requests --------------------------------------------------------------------------------------------------

    def _version(self) -> int:
        """Return the newest version that is served: 38 of v0.0.38."""
        if not self._number:
            paths = self._request("GET", "/openapi/v3")[1].get("paths") or {}
            found = {int(match[1]) for path in paths if (match := re.match(r"/slurm/v0\.0\.(\d+)/job/submit", path))}
            if not found:
                raise BackendError("SLURM_API_UNKNOWN", permanent=True, where=self.url)
            self._number = max(found)
        return self._number

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the answer to a request. Raise SlurmRejectedError where Slurm refuses it."""
        status, answer = self._request(method, f"/slurm/v0.0.{self._version()}/{path}", body)
        errors = [error for error in answer.get("errors") or () if isinstance(error, dict)]
        if status == 404 and not errors:
            self._number = 0  # it was replaced by another version: ask again next time
        if status >= 400 or (errors and not answer.get("job_id") and method == "POST"):
            failure = _build_error(status, errors, self.url)
            if failure.code in ("SLURM_UNREACHABLE", "SLURM_UNAUTHORIZED") and _has_expired(self._token()):
                failure = BackendError("SLURM_UNAUTHORIZED", user=self.user, where=self.url)
            raise failure
        return answer

    def _request(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        headers = {"X-SLURM-USER-NAME": self.user, "X-SLURM-USER-TOKEN": self._token(), "Accept": "application/json"}
        content = None
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        link = self._link()
        try:
            link.request(method, path, content, headers)
            answer = link.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise BackendError("SLURM_UNREACHABLE", why=str(error) or type(error).__name__, where=self.url) from error
        finally:
            link.close()
        if answer.status == 401 or b"Authentication failure" in text[:200]:
            raise BackendError("SLURM_UNAUTHORIZED", permanent=False, user=self.user, where=self.url)
        try:
            found = json.loads(text)
        except ValueError as error:
            why = f"HTTP {answer.status}: {text[:200].decode(errors='replace').strip()}"
            raise BackendError("SLURM_UNREACHABLE", why=why, where=self.url) from error
        return answer.status, found if isinstance(found, dict) else {}

    def _link(self) -> http.client.HTTPConnection:
        where = urlsplit(self.url)
        if where.scheme == "unix":
            return _UnixConnection(where.path)
        host, port = where.hostname or "localhost", where.port or 6820
        if where.scheme == "https":
            context = ssl.create_default_context(cafile=self._ca_file)
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)

    def _token(self) -> str:
        """Return the token, read at each use, so that it may be renewed by another program."""
        try:
            if self._token_file:
                return Path(self._token_file).read_text(encoding="utf-8").strip().removeprefix("SLURM_JWT=")
            if self._key_file:
                return build_token(Path(self._key_file).read_bytes(), self.user)
        except OSError as error:
            why = error.strerror or str(error)
            raise BackendError("SLURM_TOKEN_UNREADABLE", path=str(error.filename), why=why) from error
        return ""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(self._path)


def build_token(key: bytes, user: str) -> str:
    """Return a JWT as `scontrol token` makes it, for ten minutes."""
    moment = int(time.time())
    said = {"exp": moment + TOKEN_SECONDS, "iat": moment, "sun": user}
    text = b".".join(_encode_base64(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, said))
    return b".".join([text, _encode_base64(hmac.new(key, text, hashlib.sha256).digest())]).decode()


def _has_expired(text: str) -> bool:
    """Return whether a JWT says so itself."""
    ends = read_jwt_claims(text).get("exp")
    return isinstance(ends, (int, float)) and ends < time.time()


def _encode_base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _build_error(status: int, errors: list[dict[str, Any]], where: str) -> BackendError:
    numbers = [int(error.get("error_number") or error.get("error_code") or 0) for error in errors]
    text = "; ".join(str(error.get("description") or error.get("error") or error) for error in errors)
    said = " ".join(f"{error.get('error', '')} {error.get('description', '')}" for error in errors).lower()
    if UNREACHABLE_ERRORS.intersection(numbers) or "unable to contact" in said:
        return BackendError("SLURM_UNREACHABLE", why=text or f"HTTP {status}", where=where)
    if AUTHENTICATION_ERRORS.intersection(numbers) or "authentication" in said:
        return BackendError("SLURM_UNAUTHORIZED", user="", where=where)
    return build_rejection(numbers[0] if numbers else 0, text or f"HTTP {status}")


def _build_option_fields(options: Mapping[str, str | int | bool], submission: SlurmSubmission) -> dict[str, Any]:
    """Return a component up to v0.0.38: sbatch's options under the names of its parser. It takes `nodelist` although it
    documents none, and `requeue: false` does nothing while `no_requeue` does."""
    names = {"job-name": "name", "output": "standard_output", "time": "time_limit", "mem": "memory_per_node",
             "constraint": "constraints", "ntasks": "tasks", "ntasks-per-node": "tasks_per_node"}  # fmt: skip
    found: dict[str, Any] = {names.get(key, key.replace("-", "_")): value for key, value in options.items()}
    if "memory_per_node" in found:
        found["memory_per_node"] = parse_megabytes(str(found["memory_per_node"]))
    if "nodes" in found:
        found["nodes"] = [found["nodes"], found["nodes"]]
    return {
        **found,
        "current_working_directory": submission.folder,
        "environment": dict(submission.environment),
    }


def _build_typed_fields(options: Mapping[str, str | int | bool], submission: SlurmSubmission) -> dict[str, Any]:
    """Return a component from v0.0.39 on: fields of Slurm's own job description."""
    names = {"job-name": "name", "output": "standard_output", "constraint": "constraints", "ntasks": "tasks",
             "ntasks-per-node": "tasks_per_node"}  # fmt: skip
    found: dict[str, Any] = {}
    for key, value in options.items():
        match key:
            case "no-requeue":
                found["requeue"] = False
            case "nodelist":
                found["required_nodes"] = str(value).split(",")
            case "nodes":
                found["nodes"] = str(value)
            case "gres":
                found["tres_per_node"] = ",".join(f"gres/{one}" for one in str(value).split(","))
            case "time":
                found["time_limit"] = _build_number(parse_minutes(str(value)))
            case "mem":
                found["memory_per_node"] = _build_number(parse_megabytes(str(value)))
            case "signal":
                signal, _, seconds = str(value).partition("@")
                found |= {"kill_warning_signal": signal, "kill_warning_delay": _build_number(int(seconds))}
            case _:
                found[names.get(key, key.replace("-", "_"))] = value
    environment = [f"{name}={value}" for name, value in submission.environment.items()]
    return {**found, "current_working_directory": submission.folder, "environment": environment}


def _build_number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def _is_up(row: Mapping[str, Any]) -> bool:
    state = row.get("state") or (row.get("partition") or {}).get("state") or "UP"
    return "UP" in ([state] if isinstance(state, str) else state)

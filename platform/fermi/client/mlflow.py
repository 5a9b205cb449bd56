"""Copies runs from the platform to an existing MLflow server, by MLflow's REST API on both sides."""

from collections.abc import Iterator, Mapping, Sequence
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from urllib.parse import quote

import httpx

from fermi.client.errors import FermiError, UnreachableError, choose_error_type

MAX_RUNS, MAX_FILES = 2_000, 10_000
"""Of one task."""
BATCH = {"metrics": 1000, "params": 100, "tags": 100}
"""Of one request of `log-batch`."""
PARENT_TAG, TASK_TAG = "mlflow.parentRunId", "fermi.task"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"
SCHEME = "mlflow-artifacts:/"


class Exported(NamedTuple):
    """What was copied of a run: its id there, and how much. `files_left_out`: the server keeps its artifacts where only
    its own clients write, such as object storage."""

    task: str
    run_id: str
    metrics: int
    files: int
    files_left_out: int


class MlflowServer:
    """An MLflow server, as its REST API. `auth`: a token, or a user's name and password."""

    def __init__(self, uri: str, auth: str | tuple[str, str] = "", timeout: float = 60.0) -> None:
        """Raise UnreachableError for an address that is none."""
        headers = {"Authorization": f"Bearer {auth}"} if auth and isinstance(auth, str) else {}
        self.uri = uri.rstrip("/")
        try:
            self._http = httpx.Client(
                base_url=self.uri, headers=headers, timeout=timeout, auth=auth if isinstance(auth, tuple) else None
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise UnreachableError(f"{uri} is not an address: {error}", code="UNREACHABLE") from error

    def call(self, method: str, path: str, /, **given: Any) -> Any:
        """Return the answer; `given`: the body, or of GET the query. Raise FermiError."""
        found = {"params" if method == "GET" else "json": given}
        return self._send(method, f"/api/2.0/mlflow/{path}", **found).json()

    def find(self, method: str, path: str, /, **given: Any) -> Any:
        """Return the answer, or None if there is no such thing. Raise FermiError."""
        try:
            return self.call(method, path, **given)
        except FermiError as error:
            if error.status == 404:
                return None
            raise

    def list_pages(self, method: str, path: str, name: str, /, **given: Any) -> Iterator[Any]:
        """Yield the items of a list, from all of its pages. Raise FermiError."""
        token = ""
        while True:
            page = self.call(method, path, **given, **({"page_token": token} if token else {}))
            yield from page.get(name, [])
            token = page.get("next_page_token", "")
            if not token:
                return

    def read_artifact(self, address: str, to: IO[bytes]) -> None:
        """Write an artifact to a file. Raise FermiError."""
        path = f"{ARTIFACTS}/{quote(address)}"
        try:
            with self._http.stream("GET", path) as response:
                if response.status_code >= 400:
                    response.read()
                    self._check(response, path)
                for piece in response.iter_bytes():
                    to.write(piece)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self.uri} does not answer: {error}", code="UNREACHABLE") from error

    def write_artifact(self, address: str, content: IO[bytes]) -> None:
        """Store an artifact. Raise FermiError."""
        self._send("PUT", f"{ARTIFACTS}/{quote(address)}", content=content)

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self.uri} does not answer: {error}", code="UNREACHABLE") from error
        return self._check(response, path)

    def _check(self, response: httpx.Response, path: str) -> httpx.Response:
        """Return an answer that is no error. Raise FermiError."""
        if response.status_code < 400:
            return response
        try:
            message = str(response.json()["message"])
        except (ValueError, KeyError, TypeError):
            message = f"{self.uri}{path}: {response.status_code} {response.reason_phrase}"
        raise choose_error_type(response.status_code)(message, status=response.status_code)


def export_task(source: MlflowServer, target: MlflowServer, task: str, experiment: str = "") -> list[Exported]:
    """Copy the run of a task, and the runs below it, to another server, into an experiment (default: named like its
    own). What an earlier copy stored is not stored twice. Raise FermiError."""
    run = source.call("GET", "runs/get", run_id=task)["run"]
    own = source.call("GET", "experiments/get", experiment_id=run["info"]["experiment_id"])["experiment"]
    place = _open_experiment(target, experiment or own["name"])
    below = source.list_pages(
        "POST", "runs/search", "runs", experiment_ids=[own["experiment_id"]],
        filter=f"tags.`{PARENT_TAG}` = '{task}'", order_by=["attributes.start_time ASC"],
    )  # fmt: skip
    copied = [_export_run(source, target, run, place, "")]
    for number, child in enumerate(below):
        if number == MAX_RUNS:
            break
        copied.append(_export_run(source, target, child, place, copied[0].run_id))
    return copied


def _open_experiment(target: MlflowServer, name: str) -> str:
    """Return the id of an experiment, which is created if there is none."""
    found = target.find("GET", "experiments/get-by-name", experiment_name=name)
    if found:
        return str(found["experiment"]["experiment_id"])
    return str(target.call("POST", "experiments/create", name=name)["experiment_id"])


def _export_run(
    source: MlflowServer, target: MlflowServer, run: Mapping[str, Any], experiment: str, parent: str
) -> Exported:
    info, data = run["info"], run["data"]
    run_id = info["run_id"]
    tags = {one["key"]: one["value"] for one in data.get("tags", [])} | {TASK_TAG: run_id}
    if parent:
        tags[PARENT_TAG] = parent
    known = target.call(
        "POST", "runs/search", experiment_ids=[experiment], filter=f"tags.`{TASK_TAG}` = '{run_id}'", max_results=1
    )
    if found := known.get("runs"):
        copy = found[0]["info"]
    else:
        copy = target.call(
            "POST", "runs/create", experiment_id=experiment, run_name=info.get("run_name", ""),
            start_time=int(info["start_time"]), user_id=info.get("user_id", ""),
            tags=[{"key": TASK_TAG, "value": run_id}],
        )["run"]["info"]  # fmt: skip
    own = copy["run_id"]
    metrics = [
        {**one, "timestamp": int(one["timestamp"]), "step": int(one.get("step", 0))}
        for metric in data.get("metrics", [])
        for one in source.list_pages(
            "GET", "metrics/get-history", "metrics", run_id=run_id, metric_key=metric["key"], max_results=25_000
        )
    ]
    _log(target, own, "params", data.get("params", []))
    _log(target, own, "tags", [{"key": key, "value": value} for key, value in tags.items()])
    _log(target, own, "metrics", metrics)
    files, left_out = _export_files(source, target, run_id, info["artifact_uri"], copy["artifact_uri"])
    ended = {"end_time": int(info["end_time"])} if info.get("end_time") else {}
    target.call("POST", "runs/update", run_id=own, status=info["status"], **ended)
    return Exported(run_id, own, len(metrics), files, left_out)


def _log(target: MlflowServer, run_id: str, kind: str, found: Sequence[Mapping[str, Any]]) -> None:
    size = BATCH[kind]
    for start in range(0, len(found), size):
        target.call("POST", "runs/log-batch", run_id=run_id, **{kind: found[start : start + size]})


def _export_files(source: MlflowServer, target: MlflowServer, run_id: str, root: str, to: str) -> tuple[int, int]:
    """Copy artifacts, and return how many were copied, and how many the target does not take by its REST API."""
    count = left_out = 0
    for path in _list_files(source, run_id):
        if count + left_out == MAX_FILES:
            break
        if not to.startswith(SCHEME):
            left_out += 1
            continue
        with TemporaryFile() as content:
            source.read_artifact(f"{root.removeprefix(SCHEME).lstrip('/')}/{path}", content)
            content.seek(0)
            target.write_artifact(f"{to.removeprefix(SCHEME).lstrip('/')}/{path}", content)
        count += 1
    return count, left_out


def _list_files(source: MlflowServer, run_id: str) -> Iterator[str]:
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        found = source.call("GET", "artifacts/list", run_id=run_id, **({"path": folder} if folder else {}))
        for file in found.get("files", []):
            if file.get("is_dir"):
                waiting.append(file["path"])
            else:
                yield file["path"]

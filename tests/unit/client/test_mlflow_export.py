"""Copying runs from the platform to an MLflow server; both ends are stand-ins with requests of MLflow's REST API."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from fermi.client.errors import NotAuthenticatedError, UnreachableError
from fermi.client.mlflow import MlflowServer, export_task

RUNS = "/api/2.0/mlflow/"
FILES = "/api/2.0/mlflow-artifacts/artifacts/"


class Store:
    """What a stand-in has. It knows a value by its step and time, as MLflow's server does."""

    def __init__(self, root: str = "mlflow-artifacts:/1") -> None:
        self.root, self.token = root, "secret"
        self.runs: dict[str, dict[str, Any]] = {}
        self.experiments: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.history: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def add_run(self, run_id: str, experiment: str, tags: dict[str, str], **info: Any) -> dict[str, Any]:
        run = {
            "info": {"run_id": run_id, "experiment_id": experiment, "status": "RUNNING", "start_time": 5,
                     "artifact_uri": f"{self.root}/{run_id}", **info},
            "data": {"params": {}, "tags": tags},
        }  # fmt: skip
        self.runs[run_id] = run
        return run

    def show(self, run: dict[str, Any]) -> dict[str, Any]:
        own = run["info"]["run_id"]
        data = {kind: [{"key": key, "value": value} for key, value in run["data"][kind].items()]
                for kind in ("params", "tags")}  # fmt: skip
        data["metrics"] = [history[-1] for (run_id, _), history in self.history.items() if run_id == own]
        return {"info": run["info"], "data": data}

    def log(self, run_id: str, body: dict[str, Any]) -> None:
        for kind in ("params", "tags"):
            self.runs[run_id]["data"][kind] |= {one["key"]: one["value"] for one in body.get(kind, [])}
        for one in body.get("metrics", []):
            known = self.history.setdefault((run_id, one["key"]), [])
            if one not in known:
                known.append(one)

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        match path:
            case "experiments/get":
                return {"experiment": {"experiment_id": body["experiment_id"], "name": "own"}}
            case "experiments/get-by-name":
                found = self.experiments.get(body["experiment_name"])
                return found and {"experiment": {"experiment_id": found}}
            case "experiments/create":
                return {"experiment_id": self.experiments.setdefault(body["name"], "7")}
            case "runs/get":
                return {"run": self.show(self.runs[body["run_id"]])}
            case "runs/create":
                tags = {one["key"]: one["value"] for one in body["tags"]}
                return {"run": self.show(self.add_run(f"copy-{len(self.runs)}", body["experiment_id"], tags))}
            case "runs/search":
                key, value = body["filter"].removeprefix("tags.`").split("` = ")
                return {"runs": [self.show(run) for run in self.runs.values()
                                 if run["data"]["tags"].get(key) == value.strip("'")]}  # fmt: skip
            case "runs/log-batch":
                assert len(body.get("metrics", [])) <= 1000
                self.log(body["run_id"], body)
            case "runs/update":
                self.runs[body["run_id"]]["info"]["status"] = body["status"]
            case "metrics/get-history":
                return {"metrics": self.history[body["run_id"], body["metric_key"]]}
            case "artifacts/list":
                root = f"{self.root.removeprefix('mlflow-artifacts:/')}/{body['run_id']}/".lstrip("/")
                below = [name.removeprefix(root) for name in self.files if name.startswith(root)]
                folder = f"{body['path']}/" if body.get("path") else ""
                inside = {name.removeprefix(folder).split("/")[0] for name in below if name.startswith(folder)}
                return {"files": [{"path": folder + one, "is_dir": folder + one not in below} for one in inside]}
            case _:
                return None
        return {}


def serve(store: Store) -> tuple[str, ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _handle(self) -> None:
            given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {store.token}":
                self._send(401, b'{"error_code": "UNAUTHENTICATED", "message": "no token"}')
                return
            parts = urlsplit(self.path)
            path = unquote(parts.path)
            if path.startswith(FILES):
                if self.command == "PUT":
                    store.files[path.removeprefix(FILES)] = given
                self._send(200, store.files[path.removeprefix(FILES)])
                return
            body = json.loads(given) if given else {name: one[-1] for name, one in parse_qs(parts.query).items()}
            found = store.answer(path.removeprefix(RUNS), body)
            if found is None:
                self._send(404, b'{"message": "none"}')
            else:
                self._send(200, json.dumps(found).encode())

        do_GET = do_POST = do_PUT = _handle

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}", server


@pytest.fixture
def source() -> Store:
    store = Store("mlflow-artifacts:/task-1")
    store.add_run("task-1", "p", {"team": "a"}, status="FINISHED", end_time=9, run_name="one")
    store.add_run("child", "p", {"mlflow.parentRunId": "task-1"}, status="FAILED")
    store.runs["task-1"]["data"]["params"] = {"lr": "0.1"}
    store.history["task-1", "loss"] = [
        {"key": "loss", "value": 1 / (step + 1), "step": step, "timestamp": step} for step in range(1500)
    ]
    store.files = {"task-1/task-1/model/weights 1.bin": b"w", "task-1/task-1/a.txt": b"a"}
    return store


@pytest.fixture
def start() -> Iterator[Any]:
    servers = []

    def begin(store: Store, token: str = "secret") -> MlflowServer:
        uri, server = serve(store)
        servers.append(server)
        return MlflowServer(uri, token)

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_task_is_copied_with_what_lies_below_it(source, start):
    target = Store()
    copied = export_task(start(source), start(target), "task-1")
    assert [(one.task, one.metrics, one.files) for one in copied] == [("task-1", 1500, 2), ("child", 0, 0)]
    own, child = (target.runs[one.run_id] for one in copied)
    assert own["info"]["status"] == "FINISHED"
    assert own["data"]["params"] == {"lr": "0.1"}
    assert own["data"]["tags"] == {"team": "a", "fermi.task": "task-1"}
    assert child["data"]["tags"]["mlflow.parentRunId"] == copied[0].run_id
    assert len(target.history[copied[0].run_id, "loss"]) == 1500
    assert target.files == {f"1/{copied[0].run_id}/a.txt": b"a", f"1/{copied[0].run_id}/model/weights 1.bin": b"w"}
    assert target.experiments == {"own": "7"}


def test_a_second_copy_stores_nothing_twice(source, start):
    target = Store()
    places = start(source), start(target)
    first = export_task(*places, "task-1", "other")
    assert export_task(*places, "task-1", "other") == first
    assert len(target.runs) == 2
    assert len(target.history[first[0].run_id, "loss"]) == 1500


def test_files_are_counted_that_the_server_does_not_store_for_its_clients(source, start):
    copied = export_task(start(source), start(Store("s3://bucket")), "task-1")
    assert (copied[0].files, copied[0].files_left_out) == (0, 2)


def test_what_a_server_refuses_is_said(source, start):
    with pytest.raises(NotAuthenticatedError, match="no token"):
        export_task(start(source), start(Store(), "wrong"), "task-1")
    with pytest.raises(UnreachableError):
        export_task(MlflowServer("http://127.0.0.1:9", ""), start(Store()), "task-1")

"""A server of W&B, as far as `wandb.init` and `wandb sync` of wandb 0.31 need one: the queries that its wandb-core
sends (`Viewer`, `ServerFeaturesQuery`, `RunResumeStatus`, `UpsertBucket`, `CreateRunFiles`), the stream of a run's
files, and uploads. It refuses what W&B refuses: requests without the key, a run that was deleted, and parts of a stream
without a run. A line of history at an offset that is there replaces it, as there.

    with WandbServer(key="…") as server:
        … WANDB_BASE_URL=server.url WANDB_API_KEY=server.key …
        server.runs["gpt", "a1b2c3d4"].history
"""

import base64
import gzip
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

ENTITY = "ann"
_STREAM = re.compile(r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream")


@dataclass
class ServedRun:
    """A run: lines of its files by offset, and how often it was begun."""

    name: str
    begun: int = 0
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    config: str = "{}"

    @property
    def history(self) -> list[dict[str, Any]]:
        """Return the rows of its history, in the order of their offsets."""
        found = self.lines.get("wandb-history.jsonl", {})
        return [json.loads(found[offset]) for offset in sorted(found)]


class WandbServer:
    """Serves runs on the loopback interface, from other threads."""

    def __init__(self, key: str = "0123456789" * 4, port: int = 0) -> None:
        self.key, self.runs = key, dict[tuple[str, str], ServedRun]()
        self.deleted: set[str] = set()
        self.refused = 0
        self._lock = threading.Lock()
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self._answer(*served._answer("POST", self.path, self.headers, self._read()))

            def do_PUT(self) -> None:
                self._answer(*served._answer("PUT", self.path, self.headers, self._read()))

            def do_GET(self) -> None:
                self._answer(404, {})

            def _read(self) -> bytes:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

            def _answer(self, status: int, found: Any) -> None:
                content = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        given = base64.b64encode(f"api:{self.key}".encode()).decode()
        if path.startswith("/upload"):
            return 200, {}
        if headers.get("Authorization") != f"Basic {given}":
            self.refused += 1
            return 401, {"errors": [{"message": "permission denied"}]}
        with self._lock:
            if path == "/graphql" and method == "POST":
                asked = json.loads(body)
                return self._query(asked["query"], asked.get("variables") or {})
            if match := _STREAM.fullmatch(path):
                return self._stream(match[2], match[3], json.loads(body))
        return 404, {}

    def _query(self, query: str, given: Mapping[str, Any]) -> tuple[int, Any]:
        name = re.search(r"(?:query|mutation)\s+(\w+)", query)
        kind = name[1] if name else ""
        if "viewer" in query and kind != "UpsertBucket":
            viewer = {"id": "1", "entity": ENTITY, "username": ENTITY, "email": "", "flags": "{}",
                      "teams": {"edges": []}, "admin": False, "name": ENTITY}  # fmt: skip
            return 200, {"data": {"viewer": viewer}}
        if kind == "ServerFeaturesQuery":
            return 200, {"data": {"serverInfo": {"features": []}}}
        if kind == "RunResumeStatus":
            return 200, {"data": {"model": self._describe(given["project"], given["name"])}}
        if kind == "UpsertBucket":
            return self._upsert(given)
        if kind == "CreateRunFiles":
            files = [{"name": one, "uploadUrl": f"{self.url}/upload"} for one in given["files"]]
            return 200, {"data": {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}}
        return 200, {"data": {}, "errors": [{"message": f"{kind} is not served here"}]}

    def _describe(self, project: str, name: str) -> dict[str, Any]:
        run, bucket = self.runs.get((project, name)), None
        if run:
            lines = {file: len(found) for file, found in run.lines.items()}
            tail = [json.dumps(row) for row in run.history[-1:]]
            bucket = {
                "id": name, "name": name, "displayName": name, "summaryMetrics": "{}", "config": run.config,
                "logLineCount": lines.get("output.log", 0), "eventsLineCount": lines.get("wandb-events.jsonl", 0),
                "historyLineCount": lines.get("wandb-history.jsonl", 0), "historyTail": json.dumps(tail),
                "eventsTail": "[]", "tags": [], "notes": "", "wandbConfig": '{"t": 1}',
            }  # fmt: skip
        return {"id": project, "name": project, "entity": {"id": "1", "name": ENTITY}, "bucket": bucket}

    def _upsert(self, given: Mapping[str, Any]) -> tuple[int, Any]:
        name, project = given["name"], given.get("project") or "uncategorized"
        if name in self.deleted:
            return 409, {"errors": [{"message": f"run {name} was previously created and deleted"}]}
        known = (project, name) in self.runs
        run = self.runs.setdefault((project, name), ServedRun(name))
        run.begun += 1
        run.config = given.get("config") or run.config
        bucket = {
            "id": name, "name": name, "displayName": given.get("displayName") or name, "description": "",
            "config": "{}", "sweepName": None, "historyLineCount": len(run.lines.get("wandb-history.jsonl", {})),
            "project": {"id": project, "name": project, "entity": {"id": "1", "name": ENTITY}},
        }  # fmt: skip
        return 200, {"data": {"upsertBucket": {"bucket": bucket, "inserted": not known}}}

    def _stream(self, project: str, name: str, sent: Mapping[str, Any]) -> tuple[int, Any]:
        run = self.runs.get((project, name))
        if run is None:
            return 404, {"error": "run not found"}
        for file, part in (sent.get("files") or {}).items():
            lines = run.lines.setdefault(file, {})
            for number, line in enumerate(part["content"]):
                lines[part["offset"] + number] = line
        return 200, {}

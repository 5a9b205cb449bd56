"""The platform of docker-compose.yml on an engine, as an operator has it."""

import json
import os
import secrets
import signal
from pathlib import Path
from typing import Any

import httpx

from tests.deploy.engine import Engine
from tests.platform_process import ROOT, free_port
from tests.polling import until

NAME, PASSWORD = "operator", "correct-horse-battery"
OURS = ("web", "worker", "beat", "watcher")


class Compose:
    """`sign_in` gives a client of the API that speaks for the administrator."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.project = f"fermi{secrets.token_hex(3)}"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        for name in ("datasets", "clusters"):
            (folder / name).mkdir(mode=0o755)
        self.env = {
            "COMPOSE_PROJECT_NAME": self.project,
            "FERMI_SECRET_KEY": secrets.token_urlsafe(48),
            "POSTGRES_PASSWORD": secrets.token_hex(24),
            "FERMI_PORT": f"127.0.0.1:{self.port}",
            "FERMI_ALLOWED_HOSTS": "web",  # by which the hosts of workers reach it here
            "FERMI_DATASETS": str(folder / "datasets"),
            "FERMI_CLUSTERS": str(folder / "clusters"),
        }
        self.program = engine.compose()

    @property
    def network(self) -> str:
        return f"{self.project}_default"

    def __call__(self, *words: str, **options: Any) -> str:
        env = {**self.env, **options.pop("env", {})}
        return str(self.engine.run(*self.program, *words, env=env, **options).stdout).strip()

    def script(self, name: str, path: Path) -> str:
        """backup.sh or restore.sh, as the documentation has it typed."""
        command = str(ROOT / "deploy" / "docker" / name)
        env = {**self.env, "COMPOSE": " ".join(self.program)}
        return str(self.engine.run(command, str(path), env=env).stdout)

    def container(self, service: str) -> str:
        return self("ps", "--quiet", service, stderr=None)

    def inspect(self, container: str, template: str) -> str:
        return self.engine.docker("inspect", "--format", template, container)

    def pid(self, service: str) -> int:
        return int(self.inspect(self.container(service), "{{.State.Pid}}"))

    def kill(self, service: str) -> None:
        """The process in it dies, as of a lack of memory. (`docker kill` would be taken for a wish.)"""
        os.kill(self.pid(service), signal.SIGKILL)

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=10).status_code == 200
        except httpx.HTTPError:
            return False

    def up(self, *words: str, **options: Any) -> None:
        self("up", "--detach", *words, **options)
        until(self.is_ready, seconds=180, what="the platform is ready")

    def sign_in(self) -> "Api":
        with httpx.Client(base_url=self.url, timeout=30) as client:
            client.get("/").raise_for_status()
            headers = {"X-CSRFToken": client.cookies["csrftoken"], "Referer": self.url}
            body = {"username": NAME, "password": PASSWORD}
            client.post("/_allauth/browser/v1/auth/login", json=body, headers=headers).raise_for_status()
            headers["X-CSRFToken"] = client.cookies["csrftoken"]
            answer = client.post("/api/v1/tokens", json={"name": "deploy"}, headers=headers).raise_for_status()
        return Api(self.url, answer.json()["data"]["token"])

    def create_administrator(self) -> None:
        account = ("--no-input", "--username", NAME, "--email", "operator@example.org")
        secret = ("-e", f"DJANGO_SUPERUSER_PASSWORD={PASSWORD}")
        self("exec", "-T", *secret, "web", "python", "manage.py", "createsuperuser", *account)

    def close(self) -> None:
        self("down", "--volumes", "--timeout", "5", check=False)


class Api:
    """`project`: one that it made."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}
        self.client = httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60)
        self.project: str = self.post("/projects", {"name": "research"})["id"]

    def request(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """`data` of the answer; asked again while the platform is away."""

        def asked() -> httpx.Response | None:
            try:
                answer = self.client.request(method, path, json=body, params=query)
            except httpx.TransportError:
                return None
            return None if answer.status_code == 503 else answer

        answer = until(asked, seconds=120, what=f"an answer from {path}")
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()["data"]

    def get(self, path: str, **query: Any) -> Any:
        return self.request("GET", path, **query)

    def post(self, path: str, body: Any) -> Any:
        return self.request("POST", path, body)

    def steps(self, task_id: str) -> int:
        points = self.get(f"/training-tasks/{task_id}/metrics", limit=5000)["items"]
        return max((point["step"] for point in points), default=0)

    def until_steps(self, task_id: str, count: int) -> None:
        until(lambda: self.steps(task_id) >= count, seconds=300, what=f"{task_id} has done {count} steps")

    def until_status(self, task_id: str, *wanted: str, seconds: float = 300) -> Any:
        def reached() -> Any:
            task = self.get(f"/training-tasks/{task_id}")
            if task["status"] in {"succeeded", "failed", "stopped"} - set(wanted):
                log = self.client.get(f"/training-tasks/{task_id}/logs", params={"rank": 0}).text
                raise AssertionError(f"ended as {task['status']}: {json.dumps(task['reason'])}\n{log}")
            return task if task["status"] in wanted else None

        return until(reached, seconds=seconds, what=f"{task_id} is {' or '.join(wanted)}")

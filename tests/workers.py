"""Hosts of tests: what their agents would send, through the API."""

import json
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from tests.api.conftest import BASE, Answer, Api


@dataclass
class Host:
    """One node's agent, of which the test is the rest."""

    node: str
    join_token: str
    gpus: int = 1
    cpu: bool = False
    machine: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    incarnation: str = "first"
    sequence: int = 0

    def __post_init__(self) -> None:
        self.client = Client(raise_request_exception=False)
        self.machine = self.machine or f"machine of {self.node}"
        self.tokens: dict[str, str] = {}

    @property
    def ids(self) -> list[str]:
        return [f"{self.node}-{number}" for number in range(self.gpus)]

    def register(self, *ids: str) -> Answer:
        entries = [{"id": key, "gpu": None if self.cpu else index} for index, key in enumerate(ids or self.ids)]
        facts = {
            "machineId": self.machine, "host": self.node, "ip": "10.0.0.1", "cpuCores": 8, "memoryGb": 64,
            "gpuType": "" if self.cpu else "NVIDIA A100-SXM4-80GB", "versions": {"fermi": "0.1.0"}, **self.facts,
        }  # fmt: skip
        body = {"workers": entries, "incarnation": self.incarnation, "facts": facts}
        answer = self.send("POST", "/workers/register", self.join_token, body)
        if answer.status == 201:
            self.tokens |= {item["id"]: item["token"] for item in answer.data["workers"]}
        return answer

    def beat(self, *ids: str, **about: Any) -> list[dict[str, Any]]:
        """`about`: of each worker named (all without a name)."""
        self.sequence += 1
        workers = [
            {"id": key, "token": self.tokens[key], "incarnation": self.incarnation, "sequence": self.sequence,
             "generation": 0, "process": None, "usage": {}, "logs": {"offset": 0}, **about}
            for key in ids or self.tokens
        ]  # fmt: skip
        return self.send("POST", "/workers/heartbeat", "", {"workers": workers}).data["workers"]

    def order(self, worker: str, token: str | None = None) -> Answer:
        return self.send("GET", f"/workers/{worker}/order", token or self.tokens[worker])

    def ship(self, worker: str, log: str, offset: int, data: bytes) -> Answer:
        return self.send("PUT", f"/workers/{worker}/logs/{log}?offset={offset}", self.tokens[worker], data)

    def send(self, method: str, path: str, token: str, body: Any = None) -> Answer:
        raw = isinstance(body, bytes)
        response = self.client.generic(
            method,
            BASE + path,
            body if raw else json.dumps(body).encode() if body is not None else b"",
            content_type="application/octet-stream" if raw else "application/json",
            headers={"Accept-Language": "en", **({"Authorization": f"Bearer {token}"} if token else {})},
        )
        return Answer(response.status_code, json.loads(response.content), dict(response.headers))


def join(api: Api, project: str = "project-one") -> str:
    """A join token."""
    return api.post("/workers/join-tokens", {"name": "lab", "projectId": project}).data["token"]


def hosts(api: Api, **gpus: int) -> dict[str, Host]:
    """Registered, and heard once."""
    token = join(api)
    made = {node: Host(node, token, count) for node, count in gpus.items()}
    for host in made.values():
        assert host.register().status == 201
        host.beat()
    return made

"""Answers of the API for tests of tools: a caller that knows the operations of docs/openapi.json and no others."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermi.mcp.caller import API_PREFIX, ApiProblemError, Download

DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())


class FakeApi:
    """`answers` by "METHOD path"; `calls` are the requests so far, `used` the scopes of their operations."""

    def __init__(self, answers: Mapping[str, Any], scopes: set[str] | None = None) -> None:
        self.answers = dict(answers)
        self.scopes = scopes
        self.calls: list[tuple[str, str, dict[str, Any], Any, dict[str, str]]] = []
        self.used: set[str] = set()

    def has_scope(self, scope: str) -> bool:
        return self.scopes is None or scope in self.scopes

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        operation = find_operation(method, path)
        known = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
        assert not {name for name, value in (query or {}).items() if value is not None} - known, f"{method} {path}"
        self.used.add(operation["x-scope"])
        self.calls.append((method, path, dict(query or {}), body, dict(headers or {})))
        answer = self.answers.get(f"{method} {path}")
        if answer is None:
            raise ApiProblemError(404, "NOT_FOUND", "Not found.")
        if callable(answer):
            answer = answer(query or {}, body)
        if isinstance(answer, ApiProblemError):
            raise answer
        return answer

    async def download(self, path: str, query: Mapping[str, Any], offset: int, count: int) -> Download:
        self.used.add(find_operation("GET", path)["x-scope"])
        content = self.answers[f"GET {path}"]
        return Download(content[offset : offset + count], len(content))


def find_operation(method: str, path: str) -> dict[str, Any]:
    """Return the operation of the document that answers a request."""
    for template, methods in DOCUMENT["paths"].items():
        pattern = re.sub(r"\\\{[^/]+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, API_PREFIX + path) and method.lower() in methods:
            found: dict[str, Any] = methods[method.lower()]
            return found
    raise AssertionError(f"the API has no {method} {path}")

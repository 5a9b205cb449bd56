"""Writes people and groups as a directory does."""

import json
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from apps.accounts.models import User
from apps.common.clock import now
from apps.directory.models import DirectoryUser
from tests.api.conftest import Answer, Api

PATCH_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


@dataclass
class ScimClient:
    """`scim.get("/Users")`: paths under /scim/v2, with the token of a directory."""

    token: str
    directory: str
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def get(self, path: str, **query: Any) -> Answer:
        return self.send("GET", path, query=query)

    def post(self, path: str, body: Any) -> Answer:
        return self.send("POST", path, body)

    def put(self, path: str, body: Any) -> Answer:
        return self.send("PUT", path, body)

    def patch(self, path: str, *operations: dict[str, Any]) -> Answer:
        return self.send("PATCH", path, {"schemas": [PATCH_SCHEMA], "Operations": list(operations)})

    def delete(self, path: str) -> Answer:
        return self.send("DELETE", path)

    def send(self, method: str, path: str, body: Any = None, *, query: Any = None) -> Answer:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        response = self.client.generic(
            method,
            f"/scim/v2{path}",
            content,
            content_type="application/scim+json",
            headers={"Authorization": f"Bearer {self.token}"} if self.token else {},
            query_params=query,
        )
        return Answer(
            response.status_code, json.loads(response.content) if response.content else None, dict(response.headers)
        )

    def add_user(self, name: str, **values: Any) -> str:
        """Return the id of a new user."""
        made = self.post("/Users", {"userName": name, **values})
        assert made.status == 201, made.body
        return str(made.body["id"])

    def add_group(self, name: str, *members: str, **values: Any) -> str:
        """Return the id of a new group."""
        made = self.post("/Groups", {"displayName": name, "members": [{"value": one} for one in members], **values})
        assert made.status == 201, made.body
        return str(made.body["id"])

    def add_many(self, count: int) -> list[str]:
        """Return the ids of so many users, which are stored without requests."""
        users = User.objects.bulk_create([User(username=f"many-{number}") for number in range(count)])
        rows = [
            DirectoryUser(
                directory_id=self.directory, user=user, user_name=user.username, created_at=now(), updated_at=now()
            )
            for user in users
        ]
        return [row.pk for row in DirectoryUser.objects.bulk_create(rows)]

    def make_rule(self, pattern: str) -> dict[str, Any]:
        """Return the body of a rule that makes the people of a group members of project one."""
        return {"provider": self.directory, "pattern": pattern, "projectId": "project-one", "role": "member"}


def save_rule(admin: Api, body: dict[str, Any]) -> Any:
    """Save a rule as its preview shows it."""
    fingerprint = admin.post("/role-rules/preview", {"rule": body}).data["fingerprint"]
    return admin.post("/role-rules", {**body, "fingerprint": fingerprint})


def make_directory(admin: Api, name: str = "company") -> ScimClient:
    """Return a client of a new directory of the provider `sso`."""
    made = admin.post("/directories", {"name": name, "provider": "sso", "uidAttribute": "externalId"}).data
    return ScimClient(made["token"]["token"], made["id"])

"""Authentication of hosts: by a join token, or by a worker's own token."""

import hmac

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from apps.accounts.models import User
from apps.common.errors import ApiError
from apps.workers import tokens
from apps.workers.models import JoinToken, Worker
from apps.workers.services.registration import get_join_token


class JoinAuthentication(BaseAuthentication):
    """Authenticates a host by a join token, which becomes `request.auth`."""

    def authenticate(self, request: Request) -> tuple[User, JoinToken]:
        found = get_join_token(_get_bearer_token(request))
        return found.owner, found

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class WorkerAuthentication(BaseAuthentication):
    """Authenticates a worker by its own token; the path must name this worker. Takes one query."""

    def authenticate(self, request: Request) -> tuple[None, str]:
        worker = request.parser_context["kwargs"]["worker_id"]
        known = Worker.objects.filter(pk=worker).values_list("digest", flat=True).first()
        if known is None or not hmac.compare_digest(known, tokens.hash_token(_get_bearer_token(request))):
            raise ApiError(401, "WORKER_TOKEN_INVALID", workers=worker)
        return None, worker

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def _get_bearer_token(request: Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class JoinScheme(OpenApiAuthenticationExtension):
    target_class = JoinAuthentication
    name = "joinToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class WorkerScheme(OpenApiAuthenticationExtension):
    target_class = WorkerAuthentication
    name = "workerToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}

"""Authentication of MLflow's clients: `MLFLOW_TRACKING_TOKEN` is the token of an attempt's ranks, or one of a user."""

from django.http import HttpRequest
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, AuthenticationFailed
from rest_framework.request import Request

from apps.accounts.models import User
from apps.training.public import RUN_TOKEN_PREFIX, Task, find_token_task


class RunAuthentication(BaseAuthentication):
    """Authenticates the ranks of an attempt, whose task becomes `request.auth`. Leaves other tokens to others."""

    def authenticate(self, request: Request) -> tuple[User, Task] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.startswith(RUN_TOKEN_PREFIX):
            return None
        task = find_token_task(token.strip())
        if task is None or not task.owner.is_active:
            raise AuthenticationFailed
        return task.owner, task

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def is_run_signed_in(request: HttpRequest) -> bool:
    """Return True if a request that has not passed Django's middleware carries the token of an attempt's ranks."""
    try:
        return RunAuthentication().authenticate(Request(request)) is not None
    except APIException:
        return False


class RunScheme(OpenApiAuthenticationExtension):
    target_class = RunAuthentication
    name = "runToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}

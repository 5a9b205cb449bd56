"""Authentication of directories: `Authorization: Bearer fermi_scim_…`."""

from datetime import timedelta

from django.db import DatabaseError
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.common.clock import now
from apps.directory.directories import TOKEN_PREFIX, find_token
from apps.directory.models import Directory, DirectoryToken

USE_INTERVAL = timedelta(minutes=1)
MAX_TOKEN_LENGTH = 200


class DirectoryCaller:
    """Stands for the directory where REST framework expects a user; it is none."""

    is_authenticated = True
    is_active = True

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.pk = directory.pk


class DirectoryAuthentication(BaseAuthentication):
    """Authenticates a directory by its token. People's tokens, and sessions, are refused."""

    def authenticate(self, request: Request) -> tuple[DirectoryCaller, DirectoryToken] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer":
            return None
        found = find_token(token) if token.startswith(TOKEN_PREFIX) and len(token) <= MAX_TOKEN_LENGTH else None
        if found is None:
            raise AuthenticationFailed
        _note_use(found)
        return DirectoryCaller(found.directory), found

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class IsDirectory(BasePermission):
    """Allows directories only."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.user, DirectoryCaller)


def is_directory_signed_in(request: HttpRequest) -> bool:
    """Return True if a request that has not passed Django's middleware carries the token of a directory."""
    try:
        return DirectoryAuthentication().authenticate(Request(request)) is not None
    except APIException:
        return False


def _note_use(token: DirectoryToken) -> None:
    moment = now()
    if token.last_used_at and moment - token.last_used_at < USE_INTERVAL:
        return
    try:
        DirectoryToken.objects.filter(pk=token.pk).update(last_used_at=moment)
    except DatabaseError:  # it can be read, and for now not written: no reason to refuse a request
        return

"""Authenticates requests at /mcp: by a bearer token on each of them. A session's cookie counts nothing there, so that
no page of another origin can make a browser call tools."""

from typing import NamedTuple

from django.db import close_old_connections
from django.http import HttpRequest
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from apps.accounts.api.authentication import BearerAuthentication
from apps.accounts.scopes import TokenRights
from apps.common.errors import ApiError


class TokenUser(NamedTuple):
    """Who calls, with what rights."""

    user_id: int
    rights: TokenRights


def authenticate(request: HttpRequest) -> TokenUser:
    """Return whose token the request bears. Raise ApiError 401."""
    close_old_connections()
    try:
        found = BearerAuthentication().authenticate(Request(request))
    except APIException:
        found = None
    if found is None:
        raise ApiError(401, "NOT_AUTHENTICATED")
    user, _ = found
    return TokenUser(user.pk, user.token_rights)

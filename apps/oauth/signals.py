"""Tokens of a grant end together: whichever row is deleted first, by whomever, the others go with it."""

from typing import Any

from allauth.idp.oidc.models import Token
from django.db.models.signals import post_delete

from apps.accounts.models import ApiToken
from apps.common.clock import now
from apps.oauth.models import Grant, GrantToken


def connect_signals() -> None:
    """Connect the receivers of this module."""
    post_delete.connect(_delete_token_rows, GrantToken)
    post_delete.connect(_end_grant_of_api_token, ApiToken)
    post_delete.connect(_end_grant_of_refresh_token, Token)


def _delete_token_rows(instance: GrantToken, **_: Any) -> None:
    ApiToken.objects.filter(digest=instance.digest).delete()
    Token.objects.filter(hash=instance.digest).delete()


def _end_grant_of_api_token(instance: ApiToken, **_: Any) -> None:
    """End the grant of an access token that somebody revoked. One that had expired may be deleted without that."""
    if instance.expiry is None or instance.expiry > now():
        _end_grant(instance.digest)


def _end_grant_of_refresh_token(instance: Token, **_: Any) -> None:
    """End the grant of a refresh token that was revoked. One that was just used is replaced by allauth instead."""
    if instance.type == Token.Type.REFRESH_TOKEN:
        _end_grant(instance.hash)


def _end_grant(digest: str) -> None:
    Grant.objects.filter(tokens__digest=digest, tokens__spent_at=None).delete()

"""What people have granted to programs, and which tokens came of it. allauth has the clients and their tokens
(`allauth.idp.oidc.models`); an access token is an `accounts.ApiToken` besides, which is what the API reads."""

from functools import partial

from allauth.idp.oidc.models import Client
from django.conf import settings
from django.db import models

from apps.common.ids import new_id

DIGEST_LENGTH = 128  # hexadecimal digits of SHA-512


class Grant(models.Model):
    """What a person granted to a program. `scopes`, `projects`: as in `ApiToken`; None = all. `code_digest`: hash of
    the authorization code or device code that it is redeemed with, once. It ends at `expires_at`, with all tokens."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "grant"))
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="oauth_grants")
    client = models.ForeignKey(Client, on_delete=models.CASCADE, related_name="+")
    scopes = models.JSONField(null=True)
    projects = models.JSONField(null=True)
    code_digest = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    created_at = models.DateTimeField()
    redeemed_at = models.DateTimeField(null=True)
    refreshed_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(db_index=True)


class GrantTokenKind(models.TextChoices):
    ACCESS = "access"
    REFRESH = "refresh"


class GrantToken(models.Model):
    """A token of a grant, by its hash. A refresh token that was used stays, `spent_at` set, so that a second use is
    noticed."""

    digest = models.CharField(primary_key=True, max_length=DIGEST_LENGTH)
    grant = models.ForeignKey(Grant, on_delete=models.CASCADE, related_name="tokens")
    kind = models.CharField(max_length=10, choices=GrantTokenKind)
    spent_at = models.DateTimeField(null=True)

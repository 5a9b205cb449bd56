"""Providers that people sign in with.

    IdentityProvider ── allauth's SocialAccount(provider=<its id>, uid=…) ── User

allauth reads them through `apps.identity.adapter`; its own table of applications stays empty, because it would store
their secrets as plain text.
"""

from django.core.validators import RegexValidator
from django.db import models

ID_PATTERN = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
MAX_ID_LENGTH = 40


class ProviderKind(models.TextChoices):
    """What a provider speaks, or whose recipe its settings follow."""

    OPENID_CONNECT = "openid_connect"
    GOOGLE = "google"
    GITLAB = "gitlab"
    MICROSOFT = "microsoft"
    OKTA = "okta"
    KEYCLOAK = "keycloak"
    AUTHENTIK = "authentik"
    FEISHU = "feishu"
    LARK = "lark"
    DINGTALK = "dingtalk"
    WECOM = "wecom"
    SAML = "saml"
    LDAP = "ldap"


VENDOR_KINDS = frozenset((ProviderKind.FEISHU, ProviderKind.LARK, ProviderKind.DINGTALK, ProviderKind.WECOM))
"""Vendors whose sign-in is no OpenID Connect (`apps.identity.vendors`)."""


class IdentityProvider(models.Model):
    """A provider that an administrator set up. `id` is part of the address that it sends people back to, so it never
    changes; `name` is on its button. `secret` is encrypted (`apps.accounts.encryption`). `settings`: by kind
    (`apps.identity.provider_settings`)."""

    id = models.CharField(primary_key=True, max_length=MAX_ID_LENGTH, validators=[RegexValidator(rf"\A{ID_PATTERN}\Z")])
    kind = models.CharField(max_length=20, choices=ProviderKind)
    name = models.CharField(max_length=40)
    client_id = models.CharField(max_length=191, blank=True)
    secret = models.TextField(blank=True)
    settings = models.JSONField(default=dict, blank=True)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField()
    updated_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")

    def __str__(self) -> str:
        return self.name


class LinkedIssuer(models.Model):
    """Whose people the links of a provider mean (`apps.identity.issuers`). `provider`: its id, in the table or in the
    environment."""

    provider = models.CharField(primary_key=True, max_length=MAX_ID_LENGTH)
    issuer = models.TextField()

    def __str__(self) -> str:
        return self.provider

"""Providers that people sign in with.

    IdentityProvider ── allauth's SocialAccount(provider=<its id>, uid=…) ── User

        │                         └── ProviderGrant: a refresh token, to ask whether the provider still vouches
        ├── ProviderSession(sid=…): a session that began by the provider
        └── ProviderRecheck: when the provider is asked next

allauth reads them through `apps.identity.adapter`; its own table of applications stays empty, because it would store
their secrets as plain text.
"""

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
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


MAX_SUBJECT_LENGTH = 255
"""Of `sub` (OpenID Connect Core 1.0, section 2); longer values of `sid` are not stored either."""


class ProviderSession(models.Model):
    """A session that began by a provider. `subject` and `sid`: claims of the ID token, which a logout token names.
    `session_key`: when it began; later the session is found by the id of this row in its data."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    provider = models.CharField(max_length=MAX_ID_LENGTH)
    subject = models.CharField(max_length=MAX_SUBJECT_LENGTH)
    sid = models.CharField(max_length=MAX_SUBJECT_LENGTH, blank=True)
    session_key = models.CharField(max_length=40)
    began_at = models.DateTimeField(db_index=True)

    class Meta:
        indexes = [
            models.Index(fields=["provider", "subject"], name="session_by_subject"),
            models.Index(fields=["provider", "sid"], name="session_by_sid"),
        ]


class UsedLogoutToken(models.Model):
    """A logout token that has come. `digest`: SHA-256 of the provider and the token's `jti`."""

    digest = models.CharField(primary_key=True, max_length=64)
    expires_at = models.DateTimeField(db_index=True)


class ProviderGrant(models.Model):
    """A refresh token, encrypted. `due_at`: when it is used next. `is_pending`: it was sent, and the answer to that is
    not known, so that the provider may have replaced it."""

    account = models.OneToOneField(SocialAccount, on_delete=models.CASCADE, primary_key=True, related_name="+")
    refresh_token = models.TextField()
    due_at = models.DateTimeField(db_index=True)
    is_pending = models.BooleanField(default=False)


class ProviderRecheck(models.Model):
    """When a provider's grants are looked through next. `failures`: in a row, since `silent_since`."""

    provider = models.CharField(primary_key=True, max_length=MAX_ID_LENGTH)
    due_at = models.DateTimeField()
    failures = models.PositiveIntegerField(default=0)
    silent_since = models.DateTimeField(null=True)
    error = models.CharField(max_length=500, blank=True)


class LinkedIssuer(models.Model):
    """Whose people the links of a provider mean (`apps.identity.issuers`). `provider`: its id, in the table or in the
    environment."""

    provider = models.CharField(primary_key=True, max_length=MAX_ID_LENGTH)
    issuer = models.TextField()

    def __str__(self) -> str:
        return self.provider

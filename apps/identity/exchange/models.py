"""Rules by which pipelines get tokens, and the ID tokens that were exchanged.

Rule ── Membership of a service account in its project
"""

from functools import partial

from django.conf import settings
from django.db import models

from apps.accounts.models import Membership
from apps.common.ids import new_id


class Rule(models.Model):
    """Lets whoever has an ID token of `issuer` for `audience`, whose claims are as in `conditions`, get a token for a
    service account. `conditions`: a whole value, or its beginning with `*` behind it, by claim
    (`apps.identity.exchange.conditions`).

    It belongs to the account's membership: a service account that is deleted loses that, and one of the same name later
    does not get its rules."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "exchange"))
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="exchange_rules")
    name = models.CharField(max_length=60)
    issuer = models.CharField(max_length=200)
    audience = models.CharField(max_length=200)
    conditions = models.JSONField()
    scopes = models.JSONField()
    minutes = models.PositiveSmallIntegerField()
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField()
    updated_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["issuer"], name="exchange_rule_by_issuer")]

    def __str__(self) -> str:
        return self.name


class UsedToken(models.Model):
    """An ID token that was exchanged, until it ends. `digest`: of what its issuer signed, because a signature can be
    written in several ways."""

    digest = models.CharField(primary_key=True, max_length=64)
    expires_at = models.DateTimeField(db_index=True)

"""Exchanges an ID token of a pipeline for a token of a service account."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import audit, tokens
from apps.accounts.models import AuditEvent
from apps.accounts.scopes import contains_scope
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.identity.exchange import issuers
from apps.identity.exchange.conditions import PROPOSED, Mismatch, find_mismatch, format_value
from apps.identity.exchange.models import Rule, UsedToken

log = logging.getLogger(__name__)

REFUSAL_INTERVAL = timedelta(minutes=1)
"""The audit trail gets one refusal per service account in this time: anybody can cause them. The log gets all."""
RECORDED_CLAIMS = ("sub", "repository", "project_path", "ref", "run_id", "pipeline_id", "job_id", "actor", "user_login")


def exchange_token(subject_token: str, service_account: str, scopes: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a token of the service account with this username, by the oldest rule that accepts the ID token and gives
    the scopes. `scopes`: fewer than the rule gives; None: all of its. Raises ApiError."""
    issuer = issuers.read_issuer(subject_token)
    rules = Rule.objects.filter(enabled=True, issuer=issuer)
    if issuer not in issuers.list_issuers() or not rules.exists():
        log.info("an ID token of %s is refused: not an allowed issuer that a rule names", format_value(issuer))
        raise ApiError(400, "EXCHANGE_ISSUER", "subject_token", issuer=format_value(issuer))
    claims = issuers.read_claims(subject_token, issuer)  # requests over the network: not in the transaction
    rule = _choose_rule(service_account, issuer, claims, scopes)
    with transaction.atomic():
        return _issue_token(rule, subject_token, claims, scopes)


def _choose_rule(username: str, issuer: str, claims: Mapping[str, Any], scopes: Sequence[str] | None) -> Rule:
    """Return the rule that accepts the claims. Raises ApiError 403."""
    rules = (
        Rule.objects.filter(enabled=True, issuer=issuer)
        .filter(membership__user__username=username, membership__user__is_active=True)
        .filter(membership__user__service_project__isnull=False)
        .select_related("membership")
        .order_by("created_at", "pk")
    )
    mismatch, refused = None, None
    missing = ""
    for rule in rules:
        found = find_mismatch(rule.audience, rule.conditions, claims)
        if found is None:
            missing = next((one for one in scopes or () if not contains_scope(rule.scopes, one)), "")
            if not missing:
                return rule
        elif mismatch is None or found.held > mismatch.held:
            mismatch, refused = found, rule  # the rule that was meant most likely
    if missing:
        raise ApiError(403, "EXCHANGE_SCOPE", "scope", scope=missing)
    if refused is None or mismatch is None:
        log.info("no rule of %s accepts ID tokens of %s (sub %s)", username, issuer, format_value(claims["sub"]))
        raise ApiError(403, "EXCHANGE_REFUSED", "service_account", account=username)
    _record_refusal(refused, username, mismatch, claims)
    code = "EXCHANGE_PROPOSAL" if mismatch.expected == PROPOSED else "EXCHANGE_CLAIM"
    raise ApiError(403, code, "subject_token", claim=mismatch.claim, found=mismatch.found or "–", account=username)


def _issue_token(
    rule: Rule, subject_token: str, claims: Mapping[str, Any], scopes: Sequence[str] | None
) -> dict[str, Any]:
    """Return a new token by a rule that still holds, and note that the ID token is used. Raises ApiError."""
    locked = (
        Rule.objects.select_for_update(of=("self",))
        .select_related("membership__user", "membership__project")
        .filter(pk=rule.pk, enabled=True, updated_at=rule.updated_at, membership__user__is_active=True)
        .first()
    )
    if locked is None:
        raise ApiError(403, "EXCHANGE_REFUSED", "service_account", account="–")
    try:
        with transaction.atomic():
            UsedToken.objects.create(
                digest=_hash_signed_part(subject_token),
                expires_at=datetime.fromtimestamp(issuers.get_end(claims), UTC),
            )
    except IntegrityError:
        log.info("an ID token of %s is refused: it was exchanged before", claims["sub"])
        raise ApiError(400, "EXCHANGE_REPLAY", "subject_token") from None
    account, project = locked.membership.user, locked.membership.project
    given = sorted(set(scopes)) if scopes else list(locked.scopes)
    made = tokens.create_short_token(account, locked.name, timedelta(minutes=locked.minutes), given, project)
    Rule.objects.filter(pk=locked.pk).update(last_used_at=now())
    known = {claim: format_value(claims[claim]) for claim in RECORDED_CLAIMS if claim in claims}
    audit.record_event(
        account, "token.exchange", made["id"], project=project, rule=locked.pk, issuer=locked.issuer, claims=known
    )
    return {**made, "scopes": given, "expires_in": locked.minutes * 60}


def _record_refusal(rule: Rule, username: str, mismatch: Mismatch, claims: Mapping[str, Any]) -> None:
    log.info(
        "rule %s of %s refuses an ID token (sub %s): %s is %r, not %r",
        rule.pk,
        username,
        format_value(claims["sub"]),
        mismatch.claim,
        mismatch.found,
        mismatch.expected,
    )
    action, last = "token.exchange-refused", now() - REFUSAL_INTERVAL
    if AuditEvent.objects.filter(target=username, action=action, at__gt=last).exists():
        return
    audit.record_event(
        None,
        action,
        username,
        project=rule.membership.project_id,
        rule=rule.pk,
        claim=mismatch.claim,
        found=mismatch.found,
        expected=mismatch.expected,
    )


def _hash_signed_part(token: str) -> str:
    return hashlib.sha256(token.rpartition(".")[0].encode()).hexdigest()

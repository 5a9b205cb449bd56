"""Changes of the policy, and the acceptance of the banner."""

from dataclasses import asdict, replace
from typing import Any

from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.policies.enforcement import ACCEPTED
from apps.policies.models import POLICY_KEY, SignInPolicy
from apps.policies.policy import Policy, get_fixed_values, get_policy, read_policy, set_cached_policy
from fermi.jobs.spec import Problem

BANNER_FIELDS = ("banner_title_en", "banner_title_zh", "banner_text_en", "banner_text_zh")
API_NAMES = {
    "password_length": "passwordLength",
    "second_factor": "secondFactor",
    "tokens_exempt": "tokensExempt",
    "session_hours": "sessionHours",
    "idle_minutes": "idleMinutes",
    "banner_title_en": "bannerTitleEn",
    "banner_title_zh": "bannerTitleZh",
    "banner_text_en": "bannerTextEn",
    "banner_text_zh": "bannerTextZh",
    "banner_required": "bannerRequired",
}
"""Names of the fields in the API."""


@transaction.atomic
def change_policy(actor: User, **values: Any) -> Policy:
    """Store the whole policy. Raises ApiError 403 for others than administrators, ProblemsError for fields that the
    environment sets, and for a banner that lacks a text in one language."""
    access.require_administrator(actor)
    SignInPolicy.objects.get_or_create(pk=POLICY_KEY)
    row = SignInPolicy.objects.select_for_update().get(pk=POLICY_KEY)
    before = read_policy()
    wanted = replace(before, **values)
    if problems := _find_problems(before, wanted):
        raise ProblemsError(problems)
    banner = [*BANNER_FIELDS, "banner_required"]
    if any(getattr(wanted, name) != getattr(before, name) for name in banner):
        wanted = replace(wanted, banner_version=before.banner_version + 1)
    changed = {name: value for name, value in asdict(wanted).items() if getattr(before, name) != value}
    if not changed:
        return before
    for name, value in changed.items():
        setattr(row, name, value)
    row.updated_at = now()
    row.save()
    facts = {name: value for name, value in changed.items() if name not in BANNER_FIELDS}
    audit.record_event(actor, "sign-in-policy.change", "sign-in-policy", fields=sorted(changed), **facts)
    set_cached_policy(None)
    transaction.on_commit(lambda: set_cached_policy(None))  # a request of another thread may have read the old one
    return wanted


def _find_problems(before: Policy, wanted: Policy) -> list[Problem]:
    problems = [
        Problem(API_NAMES[name], "POLICY_READONLY", {"variable": variable})
        for name, variable in FIXED_BY.items()
        if name in get_fixed_values() and getattr(wanted, name) != getattr(before, name)
    ]
    texts = [getattr(wanted, name).strip() for name in BANNER_FIELDS]
    if any(texts) and not all(texts):
        missing = next(name for name, text in zip(BANNER_FIELDS, texts, strict=True) if not text)
        problems.append(Problem(API_NAMES[missing], "BANNER_INCOMPLETE", {}))
    if wanted.banner_required and not any(texts):
        problems.append(Problem("bannerRequired", "BANNER_MISSING", {}))
    return problems


FIXED_BY = {
    "password_length": "FERMI_PASSWORD_LENGTH",
    "second_factor": "FERMI_SECOND_FACTOR",
    "tokens_exempt": "FERMI_SECOND_FACTOR_TOKENS_EXEMPT",
    "session_hours": "FERMI_SESSION_HOURS",
    "idle_minutes": "FERMI_SESSION_IDLE_MINUTES",
}
"""The variable of the environment that sets a field."""


def accept_banner(user: User, session: SessionBase, version: int) -> None:
    """Note in the session that its user accepts the banner. Raises ApiError 409 if it has changed meanwhile."""
    if version != get_policy().banner_version:
        raise ApiError(409, "BANNER_CHANGED")
    session[ACCEPTED] = version
    audit.record_event(user, "banner.accept", user.username, version=version)

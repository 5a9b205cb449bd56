"""What the policy asks of people who are signed in."""

import time
from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.sessions.backends.base import SessionBase
from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.common.errors import ApiError
from apps.policies.policy import Policy, get_policy

BEGAN, USED, ACCEPTED = "policy_began", "policy_used", "policy_accepted_banner"
"""Keys of a session: when it began and was used last, in seconds, and which version of the banner was accepted."""
USE_SECONDS = 60
"""How exactly the last use of a session is known: it is not written for each request."""
UNUSABLE_PREFIX = "!"  # of stored passwords that nobody can use, as Django marks them


def needs_second_factor(user: User, policy: Policy) -> bool:
    """Return True if the user's account must have a second factor and has none. Accounts without a password sign in
    by a provider, whose matter it is; service accounts do not sign in."""
    rights = user.token_rights
    is_administrator = user.is_superuser or (rights is not None and rights.administrator)
    match policy.second_factor:
        case "everybody":
            concerned = True
        case "administrators":
            concerned = is_administrator
        case _:
            concerned = False
    if not concerned or user.service_project_id or not user.has_usable_password():
        return False
    return not Authenticator.objects.filter(user_id=user.pk).exclude(type=Authenticator.Type.RECOVERY_CODES).exists()


def list_without_second_factor() -> QuerySet[User]:
    """Return the active accounts with a password and without a second factor."""
    factors = Authenticator.objects.exclude(type=Authenticator.Type.RECOVERY_CODES).values("user_id")
    people = User.objects.filter(is_active=True, service_project=None).exclude(pk__in=factors)
    return people.exclude(Q(password="") | Q(password__startswith=UNUSABLE_PREFIX))


def check_session(user: User, session: SessionBase, policy: Policy) -> None:
    """Raise ApiError 403 BANNER_NOT_ACCEPTED or SECOND_FACTOR_REQUIRED where the session may do nothing yet."""
    if policy.has_banner and policy.banner_required and session.get(ACCEPTED) != policy.banner_version:
        raise ApiError(403, "BANNER_NOT_ACCEPTED")
    if needs_second_factor(user, policy):
        raise ApiError(403, "SECOND_FACTOR_REQUIRED")


def check_token(user: User) -> None:
    """Raise ApiError 403 SECOND_FACTOR_REQUIRED for a token of a person who lacks the factor, unless tokens are
    exempt."""
    policy = get_policy()
    if not policy.tokens_exempt and needs_second_factor(user, policy):
        raise ApiError(403, "SECOND_FACTOR_REQUIRED")


def renew_session(session: SessionBase, policy: Policy) -> bool:
    """Note that the session is used, and store when it ends. Returns False if it is over. A session from before the
    policy begins now."""
    moment = time.time()
    began, used = session.get(BEGAN, moment), session.get(USED, 0.0)
    ends = [began + policy.session_hours * 3600] if policy.session_hours else []
    if policy.idle_minutes:
        idle = policy.idle_minutes * 60
        if used and moment - used >= idle:
            return False
        ends.append(moment + idle)
    if any(moment >= end for end in ends):
        return False
    if moment - used >= USE_SECONDS:
        session[BEGAN], session[USED] = began, moment
        session.set_expiry(max(1, int(min(ends) - moment)))
    return True


def begin_session(request: Any, **_: Any) -> None:
    """Receiver of `user_logged_in`: what was noted of the session before counts no more."""
    for key in (BEGAN, USED, ACCEPTED):
        request.session.pop(key, None)

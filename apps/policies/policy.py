"""The policy that holds: the stored row, and above it what the platform's environment sets."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.conf import settings

from apps.policies.models import POLICY_KEY, SecondFactorRule, SignInPolicy


@dataclass(frozen=True, slots=True)
class Policy:
    """The fields of `SignInPolicy`."""

    password_length: int = 8
    second_factor: str = SecondFactorRule.NOBODY.value
    tokens_exempt: bool = False
    session_hours: int = 0
    idle_minutes: int = 0
    banner_title_en: str = ""
    banner_title_zh: str = ""
    banner_text_en: str = ""
    banner_text_zh: str = ""
    banner_required: bool = False
    banner_version: int = 0

    @property
    def limits_sessions(self) -> bool:
        """Return True if sessions end earlier than Django's own."""
        return bool(self.session_hours or self.idle_minutes)

    @property
    def has_banner(self) -> bool:
        """Return True if there is a text to show before sign-in."""
        return bool(self.banner_text_en)

    @property
    def concerns_sessions(self) -> bool:
        """Return True if anything of it concerns people who are signed in."""
        needs_factor = self.second_factor != SecondFactorRule.NOBODY
        return needs_factor or self.limits_sessions or (self.has_banner and self.banner_required)


_cached: tuple[float, Policy] | None = None


def get_policy() -> Policy:
    """Return the policy, at most settings.POLICY_MAX_AGE seconds old: so late other processes follow a change."""
    global _cached
    moment = time.monotonic()
    if _cached is None or moment - _cached[0] > settings.POLICY_MAX_AGE:
        _cached = (moment, read_policy())
    return _cached[1]


def set_cached_policy(policy: Policy | None) -> None:
    """Have this process use the policy; None: read it again."""
    global _cached
    _cached = (time.monotonic(), policy) if policy else None


def read_policy() -> Policy:
    """Return the policy as it is stored, with what the environment sets."""
    row = SignInPolicy.objects.filter(pk=POLICY_KEY).values(*asdict(Policy())).first()
    return replace(Policy(**(row or {})), **get_fixed_values())


def get_fixed_values() -> Mapping[str, Any]:
    """Return the fields that the environment sets, which the API does not change."""
    fixed: Mapping[str, Any] = settings.SIGN_IN_POLICY
    return fixed

"""What a rule requires of an ID token's claims."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.common.errors import ApiError

MAX_CONDITIONS = 10
MAX_PATTERN_LENGTH = 300
CLAIM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,99}")
RESERVED_CLAIMS = frozenset(("iss", "aud", "exp", "nbf", "iat", "jti"))
"""Checked for every token, so no conditions."""
PATH_CLAIMS = ("repository", "project_path", "sub")
ID_CLAIMS = ("repository_id", "project_id")
"""The claims of GitHub and GitLab that say where a pipeline belongs. An issuer such as these signs for everybody."""
PROPOSED = "no proposed change"
"""What a rule expects of an event that it does not name."""
PROPOSAL_EVENTS = {
    "event_name": ("pull_request", "pull_request_target", "pull_request_review", "pull_request_review_comment"),
    "pipeline_source": ("merge_request_event", "external_pull_request_event"),
}
"""Values that say that somebody proposes a change: the pipeline may run code that nobody of the project has read."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A claim that is not as a rule requires. `found`: its value, None where it is missing; `expected`: for the log and
    the project's audit trail, never for the caller; `held`: how many requirements held before it."""

    claim: str
    found: str | None
    expected: str
    held: int = 0


def check_conditions(conditions: Mapping[str, str]) -> None:
    """Raise ApiError 400 for conditions that no claim can have, and where none narrows to a repository or its owner."""
    field = "conditions"
    if len(conditions) > MAX_CONDITIONS:
        raise ApiError(400, "EXCHANGE_RULE_LONG", field, found=len(conditions), most=MAX_CONDITIONS)
    for claim, pattern in conditions.items():
        if not CLAIM_NAME.fullmatch(claim) or claim in RESERVED_CLAIMS:
            raise ApiError(400, "EXCHANGE_RULE_CLAIM", field, claim=claim[:100])
        if not pattern or pattern == "*" or "*" in pattern[:-1]:
            raise ApiError(400, "EXCHANGE_RULE_PATTERN", f"{field}.{claim}", claim=claim, pattern=pattern)
    if not any(_narrows(claim, pattern) for claim, pattern in conditions.items()):
        raise ApiError(400, "EXCHANGE_RULE_BROAD", field)


def find_mismatch(audience: str, conditions: Mapping[str, str], claims: Mapping[str, Any]) -> Mismatch | None:
    """Return the first claim that is not as required, or None. Pipelines of proposed changes need a condition on what
    started them."""
    given = claims.get("aud")
    if audience not in (given if isinstance(given, list) else [given]):
        return Mismatch("aud", format_value(given), audience)
    for held, (claim, pattern) in enumerate(_sort_conditions(conditions), 1):
        found = _read_value(claims.get(claim))
        if found is None or not _matches(pattern, found):
            return Mismatch(claim, format_value(claims.get(claim)), pattern, held)
    held = len(conditions) + 1
    for claim, events in PROPOSAL_EVENTS.items():
        if claim not in conditions and claims.get(claim) in events:
            return Mismatch(claim, str(claims[claim]), PROPOSED, held)
    if "event_name" not in claims and str(claims.get("sub")).endswith(":pull_request"):
        return Mismatch("sub", format_value(claims["sub"]), PROPOSED, held)
    return None


def format_value(value: Any) -> str | None:
    """Return a claim's value as text of at most 200 characters."""
    return None if value is None else str(value)[:200]


def _sort_conditions(conditions: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the conditions, those that say whose pipeline it is first: PostgreSQL keeps no order of a JSON object."""
    first = (*ID_CLAIMS, *PATH_CLAIMS)
    return sorted(conditions.items(), key=lambda item: (item[0] not in first, item[0]))


def _narrows(claim: str, pattern: str) -> bool:
    """Return True for a whole value, and for the beginning of a path that has at least its owner."""
    if claim in PATH_CLAIMS:
        return not pattern.endswith("*") or "/" in pattern.lstrip("/")
    return claim in ID_CLAIMS and not pattern.endswith("*")


def _matches(pattern: str, value: str) -> bool:
    return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern


def _read_value(value: Any) -> str | None:
    """Return a text, number or flag as text; None for anything else, which no condition means."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None

"""Counts people by the groups that their identity providers sent."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from allauth.socialaccount.models import SocialAccount

from apps.directory.models import RoleRule
from apps.directory.roles import matches, read_groups

GroupCount = tuple[str, int]
"""A group, and how many people have it."""


def count_groups(claim: str, provider: str = "") -> list[GroupCount]:
    """Return the groups that active people have in a claim of a provider (empty: of any), those of most people
    first."""
    people: dict[str, set[int]] = defaultdict(set)
    for user, found, claims in _read_claims():
        if provider in ("", found):
            for group in read_groups(claims, claim):
                people[group].add(user)
    return sorted(((group, len(users)) for group, users in people.items()), key=lambda row: (-row[1], row[0]))


def count_people(rules: Sequence[RoleRule]) -> dict[str, int]:
    """Return how many active people have a group of each rule, by the rule's id."""
    people: dict[str, set[int]] = {rule.pk: set() for rule in rules}
    names = {rule.claim for rule in rules}
    for user, found, claims in _read_claims() if rules else ():
        groups = {name: read_groups(claims, name) for name in names}
        for rule in rules:
            if rule.provider in ("", found) and any(matches(rule.pattern, group) for group in groups[rule.claim]):
                people[rule.pk].add(user)
    return {key: len(users) for key, users in people.items()}


def _read_claims() -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield user, provider and claims of each account at a provider, as `plan_changes` reads them."""
    rows = SocialAccount.objects.filter(user__is_active=True, user__service_project=None)
    for user, provider, claims in rows.values_list("user", "provider", "extra_data").order_by("pk").iterator():
        if isinstance(claims, dict) and claims:
            yield user, provider, claims

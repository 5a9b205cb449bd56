"""Counts people by the groups that identity providers and directories name."""

from collections.abc import Iterator, Sequence

from allauth.socialaccount.models import SocialAccount
from django.db.models import Q

from apps.accounts.models import User
from apps.directory.application import make_rule
from apps.directory.identities import read_identities
from apps.directory.models import DirectoryUser, Group, RoleRule
from apps.directory.roles import MAX_GROUPS, Identity, Rule, matches, read_groups

DIRECTORY_CLAIMS = {"groups": "display_name", "externalId": "external_id"}
"""Fields of a directory's groups, by the claims that `read_identities` makes of them."""

GroupCount = tuple[str, int]
"""A group, and how many people have it."""


def count_groups(claim: str, provider: str = "") -> list[GroupCount]:
    """Return the groups that active people have in a claim of a provider (empty: of any), those of most people
    first. A directory's groups are known without people, too."""
    people: dict[str, set[int]] = {group: set() for group in _list_directory_groups(claim, provider)}
    for user, identity in _read_claims():
        if identity.concerns(Rule(claim, "*", provider)):
            for group in read_groups(identity.claims, claim):
                people.setdefault(group, set()).add(user)
    return sorted(((group, len(users)) for group, users in people.items()), key=lambda row: (-row[1], row[0]))


def count_people(rules: Sequence[RoleRule]) -> dict[str, int]:
    """Return how many active people have a group of each rule, by the rule's id."""
    people: dict[str, set[int]] = {rule.pk: set() for rule in rules}
    names = {rule.claim for rule in rules}
    for user, identity in _read_claims() if rules else ():
        groups = {name: read_groups(identity.claims, name) for name in names}
        for rule in rules:
            if identity.concerns(make_rule(rule)) and any(matches(rule.pattern, one) for one in groups[rule.claim]):
                people[rule.pk].add(user)
    return {key: len(users) for key, users in people.items()}


def _list_directory_groups(claim: str, directory: str) -> list[str]:
    """Return the groups in a claim of a directory; none where there is no such directory or claim."""
    column = DIRECTORY_CLAIMS.get(claim)
    if column is None:
        return []
    groups = Group.objects.filter(directory=directory).order_by(column).values_list(column, flat=True)
    return read_groups({claim: list(groups[:MAX_GROUPS])}, claim)


def _read_claims() -> Iterator[tuple[int, Identity]]:
    """Yield what each provider and directory says of each active person."""
    known = Q(pk__in=SocialAccount.objects.values("user")) | Q(pk__in=DirectoryUser.objects.values("user"))
    people = User.objects.filter(known, is_active=True, service_project=None).order_by("pk")
    for user, identities in read_identities(list(people.values_list("pk", flat=True))).items():
        for identity in identities:
            yield user, identity

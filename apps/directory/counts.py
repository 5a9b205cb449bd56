"""Counts people by the groups that identity providers and directories name."""

from collections.abc import Collection, Iterator, Sequence
from threading import Lock
from time import monotonic

from allauth.socialaccount.models import SocialAccount
from django.db.models import Q

from apps.accounts.models import User
from apps.directory.identities import read_identities
from apps.directory.models import DirectoryUser, Group, RoleRule
from apps.directory.roles import MAX_GROUPS, Identity, Rule, matches, read_groups

DIRECTORY_CLAIMS = {"groups": "display_name", "externalId": "external_id"}
"""Fields of a directory's groups, by the claims that `read_identities` makes of them."""

GroupCount = tuple[str, int]
"""A group, and how many people have it."""
RuleKey = tuple[str, str, str]
"""Provider, claim and pattern of a rule."""

MIN_CACHED_IDENTITIES = 2_000
"""So many take 0.2 s to read, and more."""
CACHE_SECONDS = 60.0
_lock = Lock()
_counts: dict[RuleKey, tuple[float, int]] = {}


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
    """Return how many active people have a group of each rule, by the rule's id. Where there are many people, a
    count is at most CACHE_SECONDS old."""
    read = {row.pk: (row.provider, row.claim, row.pattern) for row in rules}
    began = monotonic()
    with _lock:
        known = {key: count for key, (until, count) in _counts.items() if until > began}
    if missing := set(read.values()) - set(known):
        counted, identities = _count_pairs(missing)
        known |= counted
        ended = monotonic()
        with _lock:
            for key in [key for key, (until, _) in _counts.items() if until <= ended]:
                del _counts[key]
            if identities >= MIN_CACHED_IDENTITIES:
                _counts.update({key: (ended + CACHE_SECONDS, count) for key, count in counted.items()})
    return {pk: known[key] for pk, key in read.items()}


def _count_pairs(keys: Collection[RuleKey]) -> tuple[dict[RuleKey, int], int]:
    """Return how many active people have a group of each provider, claim and pattern, and how many identities were
    read. Each group is compared with the patterns once, however many people have it."""
    people: dict[RuleKey, set[int]] = {key: set() for key in keys}
    by_claim: dict[tuple[str, str, bool], list[RuleKey]] = {}
    fits: dict[tuple[tuple[str, str, bool], str], list[RuleKey]] = {}
    claims = sorted({claim for _, claim, _ in keys})
    identities = 0
    for user, identity in _read_claims():
        identities += 1
        for claim in claims:
            source = (claim, identity.provider, identity.named_only)
            if source not in by_claim:
                by_claim[source] = [key for key in keys if key[1] == claim and _concerns(identity, key)]
            if not by_claim[source]:
                continue
            for group in read_groups(identity.claims, claim):
                if (source, group) not in fits:
                    fits[source, group] = [key for key in by_claim[source] if matches(key[2], group)]
                for key in fits[source, group]:
                    people[key].add(user)
    return {key: len(users) for key, users in people.items()}, identities


def _concerns(identity: Identity, key: RuleKey) -> bool:
    provider, claim, pattern = key
    return identity.concerns(Rule(claim, pattern, provider))


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

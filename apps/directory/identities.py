"""Reads what providers and directories say of people."""

from collections import defaultdict
from collections.abc import Collection

from allauth.socialaccount.models import SocialAccount

from apps.directory.models import DirectoryUser, GroupMember
from apps.directory.roles import Identity
from apps.identity.models import IdentityProvider
from apps.identity.selectors import list_configurations

NO_GROUPS = Identity("", {"id_token": {}})
"""Claims that are known, and name no group."""


def read_identities(people: Collection[int]) -> dict[int, list[Identity]]:
    """Return what is known of each of these people, by their keys. A provider that was deleted or is disabled vouches
    for nothing, and so does nobody at all. A directory's claims are `groups`, its groups' names, and `externalId`."""
    providers = {one.id for one in list_configurations()}
    providers |= set(
        IdentityProvider.objects.filter(enabled=True).values_list("pk", flat=True)
    )  # not decrypted as well
    found: dict[int, list[Identity]] = defaultdict(list)
    for account in SocialAccount.objects.filter(user__in=people).order_by("pk"):
        claims = account.extra_data if isinstance(account.extra_data, dict) else {}
        found[account.user_id].append(
            Identity(account.provider, claims) if account.provider in providers else NO_GROUPS
        )
    names: dict[str, list[str]] = defaultdict(list)
    keys: dict[str, list[str]] = defaultdict(list)
    memberships = GroupMember.objects.filter(person__user__in=people, person__deleted_at=None).order_by("pk")
    for person, name, external_id in memberships.values_list("person", "group__display_name", "group__external_id"):
        names[person].append(name)
        keys[person].append(external_id)
    for pk, user, directory in DirectoryUser.objects.filter(user__in=people).values_list("pk", "user", "directory"):
        found[user].append(Identity(directory, {"groups": names[pk], "externalId": keys[pk]}, named_only=True))
    return {key: found[key] or [NO_GROUPS] for key in people}

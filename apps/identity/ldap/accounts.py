"""Accounts of people in the directory: allauth's SocialAccount, as for any other provider, says who somebody is there.

SocialAccount(provider="ldap", uid=<what never changes>, extra_data={"login": …, "groups": [names], …})
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts import audit
from apps.accounts.models import User
from apps.identity.environment import LDAP_ID

MAX_UID_LENGTH = 191


class LdapRefusedError(Exception):
    """The directory let the person in, and the platform does not; or the directory said nothing. `code`: of the text
    that is shown."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code


@dataclass(frozen=True, slots=True)
class LdapPerson:
    """What the directory says of somebody. `uid`: what stays when the person is renamed, and is never another's."""

    uid: str
    login: str
    email: str = ""
    first_name: str = ""
    last_name: str = ""
    claims: Mapping[str, Any] = field(default_factory=dict)


@transaction.atomic
def store_person(person: LdapPerson, *, create: bool) -> User:
    """Return the account of somebody whom the directory has let in, with what it says now. An account that is not
    linked with the person is never opened, whatever its name. Raises LdapRefusedError."""
    account = SocialAccount.objects.select_related("user").filter(provider=LDAP_ID, uid=person.uid).first()
    if account is not None:
        if not account.user.is_active:
            raise LdapRefusedError("IDENTITY_USER_INACTIVE")
        SocialAccount.objects.filter(pk=account.pk).update(extra_data=dict(person.claims))
        return account.user
    if not create:
        raise LdapRefusedError("IDENTITY_USER_UNKNOWN")
    if User.objects.filter(username__iexact=person.login).exists():
        raise LdapRefusedError("IDENTITY_LDAP_NAME_TAKEN")
    if person.email and User.objects.filter(email__iexact=person.email).exists():
        raise LdapRefusedError("IDENTITY_EMAIL_TAKEN")
    user = User(username=person.login, email=person.email, first_name=person.first_name, last_name=person.last_name)
    user.set_unusable_password()
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as error:
        raise LdapRefusedError("IDENTITY_LDAP_NAME", str(error.message_dict)[:300]) from error
    user.save()
    SocialAccount.objects.create(user=user, provider=LDAP_ID, uid=person.uid, extra_data=dict(person.claims))
    audit.record_event(user, "person.create", user.username, provider=LDAP_ID)
    return user

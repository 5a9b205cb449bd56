"""`manage.py shell` reads this: an identity provider, and FERMI_SEED people whose last sign-in sent the group
ml-vision. The first of them is an administrator at the provider, too."""

import os

from allauth.socialaccount.models import SocialAccount

from apps.accounts.models import User
from apps.common.clock import now
from apps.identity.models import IdentityProvider

IdentityProvider.objects.create(
    id="company", kind="openid_connect", name="Company", client_id="fermi", created_at=now(), updated_at=now()
)
for number in range(int(os.environ["FERMI_SEED"])):
    person = User.objects.create_user(f"person-{number}")
    groups = ["ml-vision", "staff", *(["platform-admins"] if number == 0 else [])]
    claims = {"id_token": {"groups": groups}, "userinfo": {}}
    SocialAccount.objects.create(user=person, provider="company", uid=person.username, extra_data=claims)

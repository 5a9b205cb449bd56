"""`manage.py shell` reads this: one of the people of seed-groups.py has left the group ml-vision."""

from allauth.socialaccount.models import SocialAccount

SocialAccount.objects.filter(uid="person-3").update(extra_data={"id_token": {"groups": ["staff"]}, "userinfo": {}})

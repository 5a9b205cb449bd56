"""Sessions of users at proxy addresses."""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.ids import new_id


class Entry(models.Model):
    """A user's session at one proxy address. It begins with a ticket, of which only the hash is stored, and continues
    with tokens numbered by `serial`. Without the row there is no access.

    `session`, `token`: what the user was signed in with, whose end ends this session. `origin`: of the proxy address;
    `console`: origin of the console that the user came from. `path`: where the ticket leads. `kept_until`: the row
    expires then.
    """

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "entry"))
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    environment = models.ForeignKey("clusters.DevEnvironment", on_delete=models.CASCADE, related_name="+")
    door = models.CharField(max_length=63, blank=True)
    session = models.CharField(max_length=40, blank=True)
    token = models.ForeignKey("accounts.ApiToken", on_delete=models.CASCADE, null=True, related_name="+")
    origin = models.CharField(max_length=300)
    console = models.CharField(max_length=300)
    path = models.CharField(max_length=2000)
    ticket = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    entered_at = models.DateTimeField(null=True)
    serial = models.PositiveIntegerField(default=0)
    renewed_at = models.DateTimeField(null=True)
    kept_until = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.id

"""TensorBoards: which tasks each of them shows, and in which environment it runs."""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.ids import new_id


class TensorBoard(models.Model):
    """A TensorBoard in an environment of its own, with which it goes. `tasks`: ids, all of one project. `key`: of
    project and tasks, as long as opening them again leads here. `serving_run`: the newest run of the environment whose
    program has reported that it serves."""

    GOES_WITH_ENVIRONMENT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "tensorboard"))
    environment = models.OneToOneField("clusters.DevEnvironment", on_delete=models.CASCADE, related_name="tensorboard")
    tasks = models.JSONField()
    key = models.CharField(max_length=64, unique=True, null=True)
    serving_run = models.PositiveIntegerField(default=0)
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.pk

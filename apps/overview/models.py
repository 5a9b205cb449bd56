"""Stored figures of the overview."""

from django.db import models


class Hour(models.Model):
    """GPU-hours of the machines of one project, zone and type in the hour (UTC) that `begins`: that existed (`there`),
    that tasks `held`, that were `measured` by telemetry, and that were in use (`used`: each weighted by its
    utilisation). `shared`: machines that tasks of any project may use. Kept for `hourly_use.KEEP_FOR`."""

    GOES_WITH_PROJECT = True

    begins = models.DateTimeField()
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    shared = models.BooleanField()
    zone = models.CharField(max_length=100)  # its name
    gpu_type = models.CharField(max_length=40, default="", blank=True)
    there = models.FloatField()
    held = models.FloatField()
    measured = models.FloatField()
    used = models.FloatField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["begins", "project", "zone", "gpu_type", "shared"], name="one_hour_of_machines"
            )
        ]

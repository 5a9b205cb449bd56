"""What the overview keeps because nothing else says it in one read."""

from django.db import models


class Hour(models.Model):
    """GPU-hours of the machines of one project, zone and type in the hour (UTC) that `begins`: that were `there`; that
    tasks `held`; of which the telemetry knows (`measured`); and how many of these were in use (`used`: each weighed by
    its utilisation). `shared`: of those that tasks of any project may use. Kept for `hours.KEPT`."""

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

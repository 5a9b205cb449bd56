"""Models that belong to no app."""

from django.db import models


class Written(models.Model):
    """A single row: when a web process last verified that the database accepts writes."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    at = models.DateTimeField()


class ClockJump(models.Model):
    """The wall clock moved by `seconds` (negative: back) relative to the monotonic one, and was `at` then."""

    at = models.DateTimeField(db_index=True)
    seconds = models.FloatField()

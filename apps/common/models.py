"""Rows that belong to no app."""

from django.db import models


class Written(models.Model):
    """A single row: when a web process last found that the database takes what is written."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    at = models.DateTimeField()


class ClockJump(models.Model):
    """The wall clock moved by `seconds` (below zero: back) beside the monotonic one, and was `at` then."""

    at = models.DateTimeField(db_index=True)
    seconds = models.FloatField()

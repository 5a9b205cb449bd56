"""Series of what machines and ranks used, in blocks.

A block holds all values of one subject in one period, at one resolution. The storage of a subject is bounded by the
resolutions alone (`apps.telemetry.resolutions`), however long it lives and whatever is measured.
"""

from django.db import models


class Block(models.Model):
    """`subject`: as in `subjects`. `grain`: seconds between values. `begins`: unix seconds, a multiple of the block's
    length. `version` counts writes: before a process writes a block that another one has changed meanwhile, it merges
    them. `sealed`: complete, and combined into the coarser resolutions. `newest`: the last values (until it is sealed),
    and sums of counters, so that the present is known without reading the past."""

    subject = models.CharField(max_length=90)
    grain = models.PositiveIntegerField()
    begins = models.BigIntegerField()
    version = models.PositiveIntegerField(default=0)
    sealed = models.BooleanField(default=False)
    data = models.BinaryField()
    newest = models.BinaryField(default=bytes)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subject", "grain", "begins"], name="one_block_per_stretch")]
        indexes = [models.Index(fields=["grain", "sealed", "begins"])]

"""Series of what machines and ranks used, in blocks.

A block holds all values of one subject in one stretch of time, at one grain. What is kept of a subject is bounded by
the grains alone (`apps.telemetry.resolutions`), however long it lives and whatever is measured.
"""

from django.db import models


class Block(models.Model):
    """`subject`: as in `subjects`. `grain`: seconds between values. `begins`: unix seconds, a multiple of the block's
    length. `version` counts writes: who writes a block that somebody else wrote meanwhile merges first. `sealed`:
    nothing more comes, and the coarser grains have it. `newest`: the last values (until it is sealed), and what was
    counted, so that the present is known without the past."""

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

"""Sweeps and their trials. The database is the only truth: what a sampler knows is what is stored here.

Sweep 1──* Trial   one set of parameters, and the task that was run with them
"""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.ids import new_id
from fermi.sweeps.decision import SweepState, TrialState


class Sweep(models.Model):
    """A sweep. `spec`: the body that it was created with (`fermi.sweeps.spec`). `code`: the code that all trials run,
    once that of the first one is known. `due_at`, `claimed_at`: its schedule and the claim of its pass
    (`apps.common.pass_claims`). `judged_from`: failures of trials before this number do not pause it. `best`: number of
    the best trial. `gpu_hours` and `cost`: of all its trials, as they were last counted."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "sweep"))
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="sweeps", db_index=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="sweeps")
    name = models.CharField(max_length=80)
    spec = models.JSONField()
    code = models.JSONField(default=dict, blank=True)
    state = models.CharField(max_length=20, choices=[(s, s) for s in SweepState], default=SweepState.RUNNING)
    reason = models.CharField(max_length=40, default="", blank=True)
    reason_params = models.JSONField(default=dict, blank=True)
    judged_from = models.PositiveIntegerField(default=0)
    best = models.PositiveIntegerField(null=True, blank=True)
    best_value = models.FloatField(null=True, blank=True)
    gpu_hours = models.FloatField(default=0.0)
    cost = models.FloatField(null=True, blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)
    claimed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "-created_at", "id"], name="sweeps_sweep_newest"),
            models.Index(fields=["state", "-created_at"], name="sweeps_sweep_state"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


class Trial(models.Model):
    """A trial. `parameters` and `search` are those of `fermi.sweeps.search.Suggestion`; they are stored before the task
    is made. `task`: None before that, and once the task was deleted. `curve`: how far its metric has been read, and
    what it came to; `marks`: step -> objective, where trials are compared; `rung`: how many of them it has passed.
    `ends`: the state that it has when its task, which was asked to stop, has ended. `reason`: why it waits, or ended.
    """

    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="trials", db_index=False)
    number = models.PositiveIntegerField()
    parameters = models.JSONField()
    search = models.JSONField(default=dict)
    task = models.OneToOneField("training.Task", on_delete=models.SET_NULL, null=True, blank=True, related_name="trial")
    state = models.CharField(max_length=20, choices=[(s, s) for s in TrialState], default=TrialState.NEW)
    ends = models.CharField(max_length=20, default="", blank=True)
    reason = models.CharField(max_length=40, default="", blank=True)
    reason_params = models.JSONField(default=dict, blank=True)
    value = models.FloatField(null=True, blank=True)
    value_step = models.BigIntegerField(null=True, blank=True)
    curve = models.JSONField(default=dict, blank=True)
    marks = models.JSONField(default=dict, blank=True)
    rung = models.PositiveIntegerField(default=0)
    gpu_hours = models.FloatField(default=0.0)
    cost = models.FloatField(null=True, blank=True)
    counted_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["sweep", "number"], name="one_trial_per_number")]

    def __str__(self) -> str:
        return f"{self.sweep_id}/{self.number}"

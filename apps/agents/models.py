"""Purses and proposals.

ApiToken 1──1 Purse       what an agent with this token may spend
         1──* Proposal    a request that went beyond the purse, for a person to approve (by the token's id: it may go)
"""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.ids import new_id


class Purse(models.Model):
    """What an agent may spend with its token. `id`: the token's public id. Empty limits do not limit.

    `money` is in `settings.CURRENCY`. `environments`: ids of those that its tasks may use; None: all that its user may.
    `paused`: ids of tasks that were paused because the purse was spent; they are not paused for it again.
    """

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=16)
    token = models.OneToOneField("accounts.ApiToken", on_delete=models.CASCADE, related_name="purse")
    agent = models.CharField(max_length=100, default="", blank=True)
    projects = models.ManyToManyField("accounts.Project", related_name="purses")
    gpu_hours = models.FloatField(null=True)
    money = models.DecimalField(max_digits=14, decimal_places=2, null=True)
    preemptible_only = models.BooleanField(default=False)
    max_running = models.PositiveIntegerField(null=True)
    environments = models.JSONField(null=True)
    paused = models.JSONField(default=list)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.agent or self.id


class ProposalState(models.TextChoices):
    OPEN = "open"
    APPROVED = "approved"
    DECLINED = "declined"
    EXPIRED = "expired"


class Proposal(models.Model):
    """A request of an agent that went beyond its purse. Approving it sends the request once more, as `person`.

    `purse`: the token's id. `beyond`: problems, as `{"code", "params"}`. `plan`: what it would run and cost, `{}` where
    that is not estimated. `body`: what of the request may be shown; `sealed`: the whole one, encrypted. `status`,
    `result`: the answer to the approved request, as far as it may be shown; `status` None with the state `approved`: it
    was cut off, and what came of it is not known. `digest`: a keyed one of the request, to find the same one again.
    `note`: of who decided.
    """

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "proposal"))
    purse = models.CharField(max_length=16)
    token_name = models.CharField(max_length=100)
    agent = models.CharField(max_length=100, default="", blank=True)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="proposals")
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, null=True, related_name="proposals")
    operation = models.CharField(max_length=60)
    method = models.CharField(max_length=8)
    path = models.CharField(max_length=1000)
    body = models.JSONField(default=dict)
    sealed = models.TextField(default="")
    digest = models.CharField(max_length=64)
    beyond = models.JSONField(default=list)
    plan = models.JSONField(default=dict)
    difference = models.JSONField(default=dict)
    state = models.CharField(max_length=20, choices=ProposalState, default=ProposalState.OPEN)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    note = models.CharField(max_length=1000, default="", blank=True)
    status = models.PositiveIntegerField(null=True)
    result = models.JSONField(default=dict)

    class Meta:
        indexes = [
            models.Index(fields=["state", "-created_at"], name="proposal_state"),
            models.Index(fields=["purse", "state"], name="proposal_purse"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["purse", "digest"], condition=models.Q(state="open"), name="one_open_proposal_per_request"
            )
        ]

    def __str__(self) -> str:
        return f"{self.operation} ({self.id})"

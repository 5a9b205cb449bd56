"""Serializers of requests and answers about agents' tokens and proposals."""

from rest_framework import serializers

from apps.accounts.scopes import SCOPES
from apps.agents.models import ProposalState
from apps.agents.services.purses import AGENT_SCOPES
from apps.common.openapi import KeyField
from apps.common.pages import OrderingField, PageQuery

MAX_PROJECTS = 50
MAX_ENVIRONMENTS = 1000
MAX_NOTE_LENGTH = 1000


class PurseRequest(serializers.Serializer):
    gpuHours = serializers.FloatField(
        source="gpu_hours", min_value=0, max_value=1e9, allow_null=True, required=False, help_text="null: no limit"
    )
    money = serializers.DecimalField(
        max_digits=14, decimal_places=2, min_value=0, allow_null=True, required=False, help_text="null: no limit"
    )
    preemptibleOnly = serializers.BooleanField(source="preemptible_only", required=False)
    maxRunning = serializers.IntegerField(
        source="max_running", min_value=0, max_value=10_000, allow_null=True, required=False,
        help_text="tasks that have not ended; null: no limit",
    )  # fmt: skip
    environments = serializers.ListField(
        child=KeyField(), max_length=MAX_ENVIRONMENTS, allow_null=True, required=False,
        help_text="ids that its tasks may use; null: all that its user may use",
    )  # fmt: skip


class AgentTokenCreateRequest(PurseRequest):
    name = serializers.CharField(max_length=100)
    agent = serializers.CharField(max_length=100, allow_blank=True, required=False)
    projectIds = serializers.ListField(source="projects", child=KeyField(), min_length=1, max_length=MAX_PROJECTS)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(AGENT_SCOPES), max_length=len(SCOPES), required=False,
        help_text="by default what training and reading need",
    )  # fmt: skip
    expiresInDays = serializers.IntegerField(source="expires_in_days", min_value=1, max_value=3650, required=False)


class AgentTokenQuery(PageQuery):
    ordering = OrderingField("-createdAt", createdAt="created_at", agent="agent")


class PurseLimits(serializers.Serializer):
    gpuHours = serializers.FloatField(allow_null=True)
    money = serializers.FloatField(allow_null=True)
    preemptibleOnly = serializers.BooleanField()
    maxRunning = serializers.IntegerField(allow_null=True)
    environments = serializers.ListField(child=serializers.CharField(), allow_null=True)


class PurseSums(serializers.Serializer):
    gpuHours = serializers.FloatField(allow_null=True)
    money = serializers.FloatField(allow_null=True)


class AgentToken(serializers.Serializer):
    id = serializers.CharField(help_text="of the token, as in the audit trail")
    name = serializers.CharField()
    agent = serializers.CharField()
    user = serializers.CharField(help_text="whose rights it has")
    projects = serializers.ListField(child=serializers.CharField())
    scopes = serializers.ListField(child=serializers.CharField())
    createdAt = serializers.DateTimeField()
    expiresAt = serializers.DateTimeField(allow_null=True)
    lastUsedAt = serializers.DateTimeField(allow_null=True)
    purse = PurseLimits()
    spent = PurseSums()
    reserved = PurseSums(help_text="what unfinished tasks may still use; null: one of them has no end")
    left = PurseSums(help_text="null: no limit")
    currency = serializers.CharField()
    unfinishedTasks = serializers.IntegerField()
    openProposals = serializers.IntegerField()


class AgentTokenCreated(AgentToken):
    token = serializers.CharField(help_text="shown this once")


class ProposalQuery(PageQuery):
    state = serializers.ChoiceField(ProposalState.choices, required=False)
    tokenId = KeyField(required=False, allow_blank=True)
    ordering = OrderingField("-createdAt", createdAt="created_at")


class ProposalExcess(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class ProposalPlan(serializers.Serializer):
    name = serializers.CharField()
    nodes = serializers.IntegerField()
    gpus = serializers.IntegerField()
    environments = serializers.ListField(child=serializers.CharField())
    maxRunSeconds = serializers.IntegerField(allow_null=True)
    gpuHours = serializers.FloatField(allow_null=True, help_text="at most; null: it has no end")
    cost = serializers.FloatField(allow_null=True)
    currency = serializers.CharField()


class ProposalChange(serializers.Serializer):
    field = serializers.CharField()
    before = serializers.CharField(allow_null=True)
    after = serializers.CharField(allow_null=True)


class ProposalDifference(serializers.Serializer):
    taskId = serializers.CharField(help_text="the newest task that the token created in the project")
    changes = ProposalChange(many=True)


class ProposalItem(serializers.Serializer):
    id = serializers.CharField()
    tokenId = serializers.CharField()
    tokenName = serializers.CharField()
    agent = serializers.CharField()
    user = serializers.CharField(help_text="who the request is sent as")
    project = serializers.CharField(allow_null=True)
    operation = serializers.CharField()
    method = serializers.CharField()
    path = serializers.CharField()
    body = serializers.DictField(help_text="without values that may be secret")
    beyond = ProposalExcess(many=True)
    plan = ProposalPlan(allow_null=True)
    difference = ProposalDifference(allow_null=True)
    state = serializers.ChoiceField(ProposalState.choices)
    createdAt = serializers.DateTimeField()
    expiresAt = serializers.DateTimeField()
    decidedAt = serializers.DateTimeField(allow_null=True)
    decidedBy = serializers.CharField(allow_null=True)
    note = serializers.CharField(help_text="of who decided it")
    status = serializers.IntegerField(
        allow_null=True, help_text="HTTP status of the approved request; null while it is not known"
    )
    result = serializers.DictField(
        allow_null=True, help_text="the API's answer to the approved request; of its data ids, names and states"
    )
    mayDecide = serializers.BooleanField(help_text="whether you may approve and decline it")


class ProposalDeclineRequest(serializers.Serializer):
    note = serializers.CharField(
        max_length=MAX_NOTE_LENGTH, allow_blank=True, default="", help_text="why, for the agent"
    )


class ProposalApproveRequest(serializers.Serializer):
    note = serializers.CharField(max_length=MAX_NOTE_LENGTH, allow_blank=True, default="", help_text="for the agent")
    again = serializers.BooleanField(
        default=False, help_text="send it once more although it is not known whether the first time succeeded"
    )


class AgentEventQuery(PageQuery):
    ordering = OrderingField("-at", at="at")


class EventUndoRefusal(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class AgentEvent(serializers.Serializer):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    action = serializers.CharField()
    target = serializers.CharField()
    project = serializers.CharField(allow_null=True)
    data = serializers.DictField()  # type: ignore[assignment]
    undo = serializers.CharField(
        allow_null=True, help_text="stop, retry, resume or pause: what undoes it now; null: nothing"
    )
    undoRefusal = EventUndoRefusal(allow_null=True, help_text="why it cannot be undone; null: it can be")


class UndoneEvent(serializers.Serializer):
    taskId = serializers.CharField(help_text="the task that was stopped, resumed or paused, or the new one")
    status = serializers.CharField()

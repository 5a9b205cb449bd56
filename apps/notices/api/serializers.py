"""Serializers of the inbox, of notification channels and of notification rules."""

from rest_framework import serializers

from apps.common.openapi import KeyField
from apps.common.pages import PageQuery
from apps.notices.kinds import INCIDENT_KINDS
from apps.notices.models import ChannelKind, IncidentLevel, Outcome
from apps.notices.quiet_hours import MINUTES_PER_DAY
from apps.notices.sender.addresses import MAX_ADDRESS_LENGTH
from apps.notices.services.ownership import ME, PLATFORM, PROJECT
from fermi import messages

SCOPES = [(scope, scope) for scope in (ME, PROJECT, PLATFORM)]
KIND_CHOICES = [(kind, kind) for kind in INCIDENT_KINDS]
LEVELS = [(level, level) for level in IncidentLevel.values]
CHANNELS = [(kind, kind) for kind in ChannelKind.values]
LANGUAGES = [(code, code) for code in messages.LANGUAGES]
EVENT_CHOICES = [(what, what) for what in ("opened", "over", "test")]


class InboxQuery(PageQuery):
    unread = serializers.BooleanField(default=False, help_text="only what you have not read")
    grouped = serializers.BooleanField(
        default=False, help_text="those of one kind, project and day that tell of tasks as one, of the newest 500"
    )
    search = None  # type: ignore[assignment]


class InboxItem(serializers.Serializer):
    """An incident that concerns you; `body` says why, and what to do."""

    id = serializers.CharField()
    kind = serializers.ChoiceField(KIND_CHOICES)
    level = serializers.ChoiceField(LEVELS)
    projectId = serializers.CharField(allow_null=True)
    title = serializers.CharField()
    body = serializers.CharField()
    path = serializers.CharField(help_text="of the console; empty: there is no page for it")
    times = serializers.IntegerField(help_text="how often it happened, while it was one incident")
    openedAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    overAt = serializers.DateTimeField(allow_null=True)
    at = serializers.DateTimeField(help_text="when you were told")
    readAt = serializers.DateTimeField(allow_null=True)
    ids = serializers.ListField(child=serializers.CharField(), help_text="of all that it stands for")


class Inbox(serializers.Serializer):
    items = InboxItem(many=True)
    unread = serializers.IntegerField(help_text="grouped: as groups")
    total = serializers.IntegerField()
    page = serializers.IntegerField()
    pageSize = serializers.IntegerField()


class InboxReadRequest(serializers.Serializer):
    ids = serializers.ListField(
        child=KeyField(), max_length=500, required=False, allow_null=True, help_text="of incidents; null: all"
    )


class InboxUnread(serializers.Serializer):
    unread = serializers.IntegerField()


class ChannelFields(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    language = serializers.ChoiceField(LANGUAGES, source="lang", required=False)
    enabled = serializers.BooleanField(required=False)
    address = serializers.CharField(
        max_length=MAX_ADDRESS_LENGTH,
        help_text="of Apprise (mailto://…, slack://…, feishu://…), or a webhook's https://…",
    )


class ChannelCreateRequest(ChannelFields):
    scope = serializers.ChoiceField(SCOPES)
    projectId = KeyField(source="project_id", required=False, allow_null=True, help_text="with the scope `project`")
    kind = serializers.ChoiceField(CHANNELS)


class ChannelChangeRequest(ChannelFields):
    """Changes to a channel. What is left out stays as it is."""


class NoticeChannel(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    scope = serializers.ChoiceField(SCOPES)
    projectId = serializers.CharField(allow_null=True)
    kind = serializers.ChoiceField(CHANNELS)
    address = serializers.CharField(help_text="without what is secret in it")
    language = serializers.ChoiceField(LANGUAGES)
    enabled = serializers.BooleanField()
    failures = serializers.IntegerField(help_text="in a row")
    restsUntil = serializers.DateTimeField(allow_null=True, help_text="after failures; null: it does not")
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField(allow_null=True)
    lastSentAt = serializers.DateTimeField(allow_null=True)


class NoticeChannelCreated(NoticeChannel):
    secret = serializers.CharField(help_text="what its webhooks are signed with, shown this once; empty: no webhook")


class NoticeError(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()


class NoticeTry(serializers.Serializer):
    at = serializers.DateTimeField()
    seconds = serializers.FloatField(allow_null=True, help_text="null: it was cut short, or goes on")
    answer = serializers.CharField(help_text="the beginning of what the other side said")
    error = NoticeError(allow_null=True)


class NoticeDelivery(serializers.Serializer):
    id = serializers.CharField()
    incidentId = serializers.CharField(allow_null=True)
    what = serializers.ChoiceField(EVENT_CHOICES)
    title = serializers.CharField()
    outcome = serializers.ChoiceField(Outcome.choices)
    createdAt = serializers.DateTimeField()
    dueAt = serializers.DateTimeField(allow_null=True, help_text="when it is tried next")
    endedAt = serializers.DateTimeField(allow_null=True)
    tries = NoticeTry(many=True)


class NoticeKind(serializers.Serializer):
    kind = serializers.ChoiceField(KIND_CHOICES)
    level = serializers.ChoiceField(LEVELS)
    title = serializers.CharField(help_text="in the reader's language")
    description = serializers.CharField(help_text="when it is sent, in the reader's language")


class NoticeKinds(serializers.Serializer):
    items = NoticeKind(many=True)


class RuleFields(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    channels = serializers.ListField(child=KeyField(), max_length=50, help_text="ids, of the same scope")
    kinds = serializers.ListField(
        child=serializers.ChoiceField(KIND_CHOICES),
        max_length=len(KIND_CHOICES),
        required=False,
        help_text="empty: all",
    )
    level = serializers.ChoiceField(LEVELS, required=False, help_text="and what is worse")
    restarts = serializers.IntegerField(
        min_value=1, max_value=10_000, required=False, allow_null=True, help_text="from so many of a task on"
    )
    waitsSeconds = serializers.IntegerField(
        source="waits_seconds", min_value=60, max_value=30 * 86_400, required=False, allow_null=True,
        help_text="from so many seconds of waiting on; null: from an hour on",
    )  # fmt: skip
    quietFrom = serializers.IntegerField(
        source="quiet_from", min_value=0, max_value=MINUTES_PER_DAY - 1, required=False, allow_null=True,
        help_text="minutes of the day",
    )  # fmt: skip
    quietTo = serializers.IntegerField(
        source="quiet_to", min_value=0, max_value=MINUTES_PER_DAY - 1, required=False, allow_null=True
    )
    timezone = serializers.CharField(max_length=60, required=False)
    breaksThrough = serializers.ChoiceField(
        LEVELS, source="breaks_through", required=False, help_text="from there on quiet hours do not count"
    )
    enabled = serializers.BooleanField(required=False)


class RuleCreateRequest(RuleFields):
    scope = serializers.ChoiceField(SCOPES)
    projectId = KeyField(source="project_id", required=False, allow_null=True, help_text="with the scope `project`")


class RuleChangeRequest(RuleFields):
    """Changes to a rule. What is left out stays as it is."""


class NoticeRule(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    scope = serializers.ChoiceField(SCOPES)
    projectId = serializers.CharField(allow_null=True)
    channels = serializers.ListField(child=serializers.CharField())
    kinds = serializers.ListField(child=serializers.ChoiceField(KIND_CHOICES))
    level = serializers.ChoiceField(LEVELS)
    restarts = serializers.IntegerField(allow_null=True)
    waitsSeconds = serializers.IntegerField(allow_null=True)
    quietFrom = serializers.IntegerField(allow_null=True)
    quietTo = serializers.IntegerField(allow_null=True)
    timezone = serializers.CharField()
    breaksThrough = serializers.ChoiceField(LEVELS)
    enabled = serializers.BooleanField()
    createdAt = serializers.DateTimeField()

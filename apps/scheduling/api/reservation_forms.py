"""Shapes of reservations and maintenance windows."""

from rest_framework import serializers

from apps.common.openapi import DateTime, KeyField
from apps.common.pages import OrderingField, PageQuery

KINDS = [(kind, kind) for kind in ("reserved", "maintenance")]


class ReservationQuery(PageQuery):
    project = KeyField(required=False, allow_blank=True, help_text="id: those for it, and those of its environments")
    locals()["from"] = DateTime(required=False, help_text="those that end later; now by default")
    to = DateTime(required=False, help_text="those that begin earlier")
    ordering = OrderingField("beginsAt", beginsAt="begins_at", endsAt="ends_at")


class ReservationChangeRequest(serializers.Serializer):
    projectId = KeyField(
        source="project_id", allow_null=True, required=False, help_text="null: nobody gets them, they are maintained"
    )
    environmentIds = serializers.ListField(source="environment_ids", child=KeyField(), max_length=1024)
    beginsAt = DateTime(source="begins_at")
    endsAt = DateTime(source="ends_at")
    note = serializers.CharField(max_length=200, allow_blank=True, required=False)


class ReservationCreateRequest(ReservationChangeRequest):
    pass


class ReservedEnvironment(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()


class Reservation(serializers.Serializer):
    id = serializers.CharField()
    kind = serializers.ChoiceField(KINDS)
    projectId = serializers.CharField(allow_null=True, help_text="null: maintenance, or a project you are not in")
    projectName = serializers.CharField(help_text="empty: maintenance, or a project you are not in")
    environments = ReservedEnvironment(many=True, help_text="those that you may see")
    beginsAt = serializers.DateTimeField()
    endsAt = serializers.DateTimeField()
    note = serializers.CharField(help_text="empty for a project you are not in")
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField()
    mayChange = serializers.BooleanField()

"""Endpoint of the stream of the audit trail."""

from rest_framework import serializers

from apps.accounts import access
from apps.audit_stream import selectors
from apps.common.api import APIView, Data, Request, operation


class AuditReceiverItem(serializers.Serializer):
    name = serializers.ChoiceField([("syslog", "syslog"), ("webhook", "webhook")])
    address = serializers.CharField(help_text="without user, password, path and query")
    position = serializers.IntegerField(allow_null=True, help_text="id of the last event that it confirmed")
    eventsBehind = serializers.IntegerField(help_text="events that it has not confirmed; at most 10,000 are counted")
    firstUnsentAt = serializers.DateTimeField(allow_null=True)
    sentAt = serializers.DateTimeField(allow_null=True)
    failingSince = serializers.DateTimeField(allow_null=True)
    failures = serializers.IntegerField()
    problem = serializers.CharField()
    nextTryAt = serializers.DateTimeField(allow_null=True)


class AuditStream(serializers.Serializer):
    receivers = AuditReceiverItem(many=True)


class AuditStreamView(APIView):
    @operation("getAuditStream", scope="audit:read", data=AuditStream)
    def get(self, request: Request) -> Data:
        """Return where the audit trail is sent to, and how far each receiver has come (administrator)."""
        access.require_administrator(request.user)
        return {"receivers": selectors.list_receivers()}

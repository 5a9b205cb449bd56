"""Shapes of requests and answers about access to environments."""

from rest_framework import serializers

from apps.proxy.hostnames import LONGEST, LONGEST_PATH


class DoorRequest(serializers.Serializer):
    door = serializers.CharField(required=False, max_length=LONGEST, default="", allow_blank=True)
    path = serializers.CharField(required=False, max_length=LONGEST_PATH, default="/", allow_blank=True)


class DoorTicket(serializers.Serializer):
    url = serializers.CharField()
    expiresAt = serializers.DateTimeField()

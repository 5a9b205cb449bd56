"""Serializers of requests and answers about access to environments."""

from rest_framework import serializers

from apps.proxy.hostnames import MAX_LABEL_LENGTH, MAX_PATH_LENGTH


class DoorRequest(serializers.Serializer):
    door = serializers.CharField(required=False, max_length=MAX_LABEL_LENGTH, default="", allow_blank=True)
    path = serializers.CharField(required=False, max_length=MAX_PATH_LENGTH, default="/", allow_blank=True)


class DoorTicket(serializers.Serializer):
    url = serializers.CharField()
    expiresAt = serializers.DateTimeField()

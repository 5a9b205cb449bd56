"""Serializers that several apps share."""

from rest_framework import serializers


class UsageParts(serializers.Serializer):
    """What held time was used for."""

    starting = serializers.FloatField(help_text="until the first step")
    training = serializers.FloatField(help_text="steps that nobody had trained before")
    saving = serializers.FloatField(help_text="from when it was asked to end until it had")
    lost = serializers.FloatField(help_text="to failures, and to the back-off after them")
    redone = serializers.FloatField(help_text="steps that were trained again")
    idle = serializers.FloatField(help_text="held without an attempt")
    hung = serializers.FloatField(help_text="its ranks did not advance")

"""How envelopes look in the OpenAPI document."""

from functools import cache
from typing import Any

from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers

Shape = type[serializers.Serializer]


class ProblemItem(serializers.Serializer):
    """`field` is a path like `distributedConfig.masterNode`; empty = the request as a whole."""

    field = serializers.CharField()
    error = serializers.CharField(help_text="stable code")
    message = serializers.CharField()
    hint = serializers.CharField()


class ErrorEnvelope(serializers.Serializer):
    code = serializers.IntegerField(help_text="the HTTP status")
    message = serializers.CharField()
    error = serializers.CharField(help_text="stable code")
    errors = ProblemItem(many=True)  # type: ignore[assignment]
    requestId = serializers.CharField()


@extend_schema_field({"type": "null"})
class Nothing(serializers.Field):
    """What an operation answers that has nothing to tell."""


@cache
def envelope(data: Shape | None) -> Any:
    """`data` in its envelope; None = `"data": null`."""
    name = data.__name__ if data else "Empty"
    inner = data() if data else Nothing()
    return _named(
        f"{name}Envelope",
        {"code": serializers.IntegerField(), "message": serializers.CharField(), "data": inner},
    )


@cache
def page_of(item: Shape) -> Shape:
    """A page of `item`."""
    numbers = {name: serializers.IntegerField() for name in ("total", "page", "pageSize")}
    return type(_named(f"{item.__name__}Page", {"items": item(many=True), **numbers}))


def _named(name: str, fields: dict[str, Any]) -> Any:
    return inline_serializer(name=name, fields=fields)

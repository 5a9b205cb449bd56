"""How envelopes look in the OpenAPI document."""

from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeGuard

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import extend_schema_field, inline_serializer
from msgspec import Struct
from rest_framework import serializers

from apps.common.bounds import MAX_ENTRIES, MAX_NAMES
from fermi.jobs import json_shape

Shape = type[serializers.Serializer]

_COMPONENTS = "#/components/schemas/"
_STRUCTS: dict[str, type[Struct]] = {}
"""Bodies that are frozen classes, by their name in the document."""

INT4, INT8 = 2**31 - 1, 2**63 - 1
"""The largest numbers that a column of four or eight bytes holds."""


def is_struct(body: Any) -> TypeGuard[type[Struct]]:
    return isinstance(body, type) and issubclass(body, Struct)


def reference(body: type[Struct]) -> dict[str, Any]:
    """What stands for it in the document; `with_structs` adds what it stands for."""
    _STRUCTS[_component(body.__name__)] = body
    return {"application/json": {"$ref": f"{_COMPONENTS}{_component(body.__name__)}"}}


def _component(name: str) -> str:
    """`TaskRequest` is what creates a task: it is called as the other bodies are."""
    return {"TaskRequest": "TaskCreateRequest"}.get(name, name)


def with_structs(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """For drf-spectacular (POSTPROCESSING_HOOKS)."""
    schemas = result["components"]["schemas"]
    for body in _STRUCTS.values():
        schemas |= {_component(name): part for name, part in json_shape.components(body, _COMPONENTS).items()}
    result["components"]["schemas"] = dict(sorted(schemas.items()))
    return result


class Truthful(AutoSchema):
    """Says of what comes in all that `apps.common.request_shapes` refuses: names that are not known, texts of nothing
    but white space. A serializer may say `TAKES_MORE` = True: names that are not known are left out, `WHOLE` = True: a
    PATCH names all."""

    def _map_basic_serializer(self, serializer: Any, direction: str) -> Any:
        schema = super()._map_basic_serializer(serializer, direction)
        if direction == "request" and not getattr(serializer, "TAKES_MORE", False):
            schema["additionalProperties"] = False
        elif direction == "request":
            schema["maxProperties"] = MAX_NAMES
        if getattr(serializer, "WHOLE", False):
            schema["required"] = [name for name, field in serializer.fields.items() if field.required]
        return schema

    def _map_serializer_field(self, field: Any, direction: str, bypass_extensions: bool = False) -> Any:
        if isinstance(field, serializers.JSONField):
            return {"description": field.help_text} if field.help_text else {}
        schema = super()._map_serializer_field(field, direction, bypass_extensions)
        if direction == "request" and isinstance(field, serializers.DictField):
            schema["maxProperties"] = MAX_ENTRIES
        return schema

    def _get_serializer_field_meta(self, field: Any, direction: str) -> Any:
        meta = super()._get_serializer_field_meta(field, direction)
        is_text = type(field) is serializers.CharField or isinstance(field, Key)
        if direction == "request" and is_text and not field.allow_blank:
            meta["minLength"] = 1
            if field.trim_whitespace:
                meta["pattern"] = json_shape.SAYS_SOMETHING
        return meta


@extend_schema_field({"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]})
class AddressField(serializers.IPAddressField):
    """IPv4 or IPv6."""


class Key(serializers.CharField):
    """The id or name of something that is there already; a filter where it may be empty."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 100, **options})


class Moment(serializers.DateTimeField):
    """ISO 8601; UTC where nothing else is said. At both ends of the calendar, any offset is as good as another."""

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is not None:
            with suppress(OverflowError):
                return value.astimezone(UTC)
        return value.replace(tzinfo=UTC)


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
def envelope(data: Shape | None, *, nullable: bool = False) -> Any:
    """`data` in its envelope; None = `"data": null`, which with `nullable` it may be, too."""
    name = f"{'Optional' if nullable else ''}{data.__name__}" if data else "Empty"
    inner = data(allow_null=nullable) if data else Nothing()
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

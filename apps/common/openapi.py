"""How envelopes and request bodies appear in the OpenAPI document."""

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
"""Bodies that are msgspec structs, by their name in the document."""

MAX_INT4, MAX_INT8 = 2**31 - 1, 2**63 - 1
"""Largest number that a column of four bytes holds."""


def is_struct(body: Any) -> TypeGuard[type[Struct]]:
    return isinstance(body, type) and issubclass(body, Struct)


def make_reference(body: type[Struct]) -> dict[str, Any]:
    """Return the reference to a struct in the document; `add_structs` adds its schema."""
    _STRUCTS[_name_component(body.__name__)] = body
    return {"application/json": {"$ref": f"{_COMPONENTS}{_name_component(body.__name__)}"}}


def _name_component(name: str) -> str:
    """Return the component's name: `TaskRequest`, which creates a task, is named as the other bodies are."""
    return {"TaskRequest": "TaskCreateRequest"}.get(name, name)


def add_structs(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the schemas of structs to the document (a POSTPROCESSING_HOOK of drf-spectacular)."""
    schemas = result["components"]["schemas"]
    for body in _STRUCTS.values():
        schemas |= {
            _name_component(name): part for name, part in json_shape.build_components(body, _COMPONENTS).items()
        }
    result["components"]["schemas"] = dict(sorted(schemas.items()))
    return result


class StrictSchema(AutoSchema):
    """Schema generator that documents all that `apps.common.request_shapes` refuses: unknown names, texts of white
    space only. In a serializer, `TAKES_MORE` = True means that unknown names are left out, `WHOLE` = True that a PATCH
    has all fields."""

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
        is_text = type(field) is serializers.CharField or isinstance(field, KeyField)
        if direction == "request" and is_text and not field.allow_blank:
            meta["minLength"] = 1
            if field.trim_whitespace:
                meta["pattern"] = json_shape.NOT_BLANK_PATTERN
        return meta


@extend_schema_field({"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]})
class AddressField(serializers.IPAddressField):
    """An IPv4 or IPv6 address."""


class KeyField(serializers.CharField):
    """The id or name of something that exists; a filter where it may be empty."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 100, **options})


class DateTime(serializers.DateTimeField):
    """ISO 8601; UTC if it has no offset. At both ends of the calendar, where no conversion is possible, the offset is
    ignored."""

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is not None:
            with suppress(OverflowError):
                return value.astimezone(UTC)
        return value.replace(tzinfo=UTC)


class TextPlace(serializers.Serializer):
    """A part of a text, in characters (Unicode code points) from 0."""

    locals()["from"] = serializers.IntegerField()
    to = serializers.IntegerField(help_text="the first behind it")


class ProblemItem(serializers.Serializer):
    """`field` is a path like `distributedConfig.masterNode`; empty = the request as a whole."""

    field = serializers.CharField()
    error = serializers.CharField(help_text="stable code")
    message = serializers.CharField()
    hint = serializers.CharField()
    place = TextPlace(required=False, help_text="of a query over runs: the part of it that is wrong")


class Reason(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField(help_text="what to do")


class StoredProposal(serializers.Serializer):
    id = serializers.CharField()
    address = serializers.CharField(help_text="where it is read and decided")


class ErrorEnvelope(serializers.Serializer):
    code = serializers.IntegerField(help_text="the HTTP status")
    message = serializers.CharField()
    error = serializers.CharField(help_text="stable code")
    errors = ProblemItem(many=True)  # type: ignore[assignment]
    requestId = serializers.CharField()
    proposal = StoredProposal(
        required=False, help_text="what was stored in place of a request that goes beyond a token's purse"
    )


@extend_schema_field({"type": "null"})
class EmptyResponse(serializers.Field):
    """Data of an operation that returns none: null."""


@cache
def make_envelope(data: Shape | None, *, nullable: bool = False) -> Any:
    """Return the serializer of `data` in the envelope; None: `"data": null`, which `nullable` allows besides."""
    name = f"{'Optional' if nullable else ''}{data.__name__}" if data else "Empty"
    inner = data(allow_null=nullable) if data else EmptyResponse()
    return _make_serializer(
        f"{name}Envelope",
        {"code": serializers.IntegerField(), "message": serializers.CharField(), "data": inner},
    )


@cache
def make_page_shape(item: Shape) -> Shape:
    """Return the serializer of a page of `item`."""
    numbers = {name: serializers.IntegerField() for name in ("total", "page", "pageSize")}
    return type(_make_serializer(f"{item.__name__}Page", {"items": item(many=True), **numbers}))


def _make_serializer(name: str, fields: dict[str, Any]) -> Any:
    return inline_serializer(name=name, fields=fields)

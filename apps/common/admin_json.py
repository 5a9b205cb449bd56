"""JSON in forms of the administration, looked at as in a request to the API."""

from typing import Any

import orjson
from django import forms
from django.forms.fields import InvalidJSONInput
from rest_framework import serializers

from apps.common.errors import ApiError
from apps.common.request_shapes import parse
from apps.common.texts import text


class _AsAsked(forms.JSONField):
    """Shown again as it was typed: read and written anew, it may be too deep to write, or what no page can hold."""

    serializer: type[serializers.Serializer]
    named: str
    empty: type

    def to_python(self, value: Any) -> Any:
        try:
            given = {self.named: orjson.loads(value)} if value else {}
            return next(iter(parse(self.serializer, given, partial=True).values()), self.empty())
        except orjson.JSONDecodeError as error:
            raise forms.ValidationError(f"{self.error_messages['invalid']} ({error})") from None
        except ApiError as error:
            raise invalid(error) from None

    def bound_data(self, data: Any, initial: Any) -> Any:
        return InvalidJSONInput(data or "")


def as_asked(serializer: type[serializers.Serializer], named: str, empty: type = dict) -> type[forms.JSONField]:
    """A field that takes what that serializer takes under that name."""
    return type(f"{_AsAsked.__name__}_{named}", (_AsAsked,), {"serializer": serializer, "named": named, "empty": empty})


def invalid(error: ApiError) -> forms.ValidationError:
    return forms.ValidationError([" ".join(text(one.code, one.params)) for one in error.problems])

"""JSON fields in the console's forms, validated as in an API request."""

from typing import Any

import orjson
from django import forms
from django.forms.fields import InvalidJSONInput
from rest_framework import serializers

from apps.common.errors import ApiError
from apps.common.request_shapes import parse
from apps.common.texts import text


class _AsAsked(forms.JSONField):
    """JSON field that is shown again as it was typed: parsed and written anew it may be too deep to write, or contain
    what a page cannot show."""

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
    """Return a form field class that accepts what `serializer` accepts under the name `named`."""
    return type(f"{_AsAsked.__name__}_{named}", (_AsAsked,), {"serializer": serializer, "named": named, "empty": empty})


def invalid(error: ApiError) -> forms.ValidationError:
    """Return the form error with the texts of the API error."""
    return forms.ValidationError([" ".join(text(one.code, one.params)) for one in error.problems])

"""JSON fields in the console's forms, validated as in an API request."""

from typing import Any

import orjson
from django import forms
from django.forms.fields import InvalidJSONInput
from rest_framework import serializers

from apps.common.errors import ApiError
from apps.common.request_shapes import parse_body
from apps.common.texts import render_text


class _JsonField(forms.JSONField):
    """JSON field that is shown again as it was typed: parsed and written anew it may be too deep to write, or contain
    what a page cannot show."""

    serializer: type[serializers.Serializer]
    named: str
    empty: type

    def to_python(self, value: Any) -> Any:
        try:
            given = {self.named: orjson.loads(value)} if value else {}
            return next(iter(parse_body(self.serializer, given, partial=True).values()), self.empty())
        except orjson.JSONDecodeError as error:
            raise forms.ValidationError(f"{self.error_messages['invalid']} ({error})") from None
        except ApiError as error:
            raise make_validation_error(error) from None

    def bound_data(self, data: Any, initial: Any) -> Any:
        return InvalidJSONInput(data or "")


def make_json_field(serializer: type[serializers.Serializer], named: str, empty: type = dict) -> type[forms.JSONField]:
    """Return a form field class that accepts what `serializer` accepts under the name `named`."""
    return type(
        f"{_JsonField.__name__}_{named}", (_JsonField,), {"serializer": serializer, "named": named, "empty": empty}
    )


def make_validation_error(error: ApiError) -> forms.ValidationError:
    """Return the form error with the texts of the API error."""
    return forms.ValidationError([" ".join(render_text(one.code, one.params)) for one in error.problems])

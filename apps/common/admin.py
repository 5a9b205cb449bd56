"""Base classes of the operators' console: read-only pages, and actions that go through services.

The console writes nothing directly that a service owns: no state, no lease, no token.
"""

from collections.abc import Callable, Iterable
from typing import Any

import orjson
from django import forms
from django.apps import apps
from django.contrib import messages
from django.db.models import Model
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest
from rest_framework import serializers
from unfold.admin import ModelAdmin

from apps.common.errors import ApiError
from apps.common.request_shapes import parse_body
from apps.common.texts import lazy_admin_text, render_text

SEARCH_HELP = lazy_admin_text("SEARCH")


def label_app(app: str, code: str) -> None:
    """Set an app's name in the console."""
    apps.get_app_config(app).verbose_name = lazy_admin_text(code)


def label_model(model: type[Model], code: str, **fields: str) -> None:
    """Set the names of a model and its fields in the console, by message code. As `Meta.verbose_name` they would need
    migrations."""
    model._meta.verbose_name = model._meta.verbose_name_plural = lazy_admin_text(code)
    if model._meta.pk and model._meta.pk.name == "id":
        model._meta.pk.verbose_name = lazy_admin_text("ID")
    for field, field_code in fields.items():
        model._meta.get_field(field).verbose_name = lazy_admin_text(field_code)  # type: ignore[union-attr]


class ReadOnlyAdmin(ModelAdmin):
    """Pages that only show rows, for users with view permission; actions with `permissions=["operate"]` are for those
    with change permission."""

    list_per_page = 50
    search_help_text = SEARCH_HELP
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return super().has_change_permission(request)

    def apply(
        self, request: HttpRequest, rows: Iterable[Model], service: Callable[[Any, Any], object], done_code: str
    ) -> None:
        """Call `service(user, row)` for each row; show how many calls succeeded, and why each other one failed."""
        good = 0
        for row in rows:
            try:
                service(request.user, row)
                good += 1
            except ApiError as error:
                for problem in error.problems:
                    why = render_text(problem.code, problem.params)[0]
                    self.message_user(request, f"{row}: {why}", messages.ERROR)
        if good:
            self.message_user(request, f"{lazy_admin_text(done_code)}: {good}", messages.SUCCESS)


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


class AdministratorsAdmin(ModelAdmin):
    """Forms that administrators alone may use; each saves through its service."""

    search_help_text = SEARCH_HELP
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.is_superuser

    def get_actions(self, request: HttpRequest) -> Any:
        """Return the actions without bulk deletion: rows are deleted one by one through the service."""
        found = super().get_actions(request)
        found.pop("delete_selected", None)
        return found

"""The operators' console asked for what none of its pages asks for: a page, a redirect or a 4xx, and never a fault."""

import json
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import Model
from django.forms import JSONField
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.clusters.models import Cluster

pytestmark = pytest.mark.database

VALUES = ["\0", "9" * 30, "2026-13-99"]
"""What no column takes: text that PostgreSQL cannot hold, a number beyond SQLite's, and neither number nor date."""
admin.autodiscover()
MODELS = pytest.mark.parametrize("model", admin.site._registry, ids=lambda model: model._meta.label)


@pytest.fixture
def operator(db: None) -> Client:
    client = Client(raise_request_exception=False, headers={"Accept-Language": "en"})
    client.force_login(User.objects.create_superuser("root"))
    return client


def home(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def list_queries(console: ModelAdmin) -> Iterator[str]:
    """By its pages, by its filters, and by nobody."""
    filters = [name for name in console.list_filter if isinstance(name, str)]
    yield from ("p", "o", "q", "_to_field", "no_such_field", "id__gte")
    yield from (f"{name}{lookup}" for name in filters for lookup in ("__exact", "__gte"))


@MODELS
def test_invalid_filters_of_a_list_are_no_server_error(operator: Client, model: type[Model]) -> None:
    queries = [{name: value} for name in list_queries(admin.site._registry[model]) for value in VALUES] + [{"\0": "x"}]
    found = {urlencode(query): operator.get(home(model), query).status_code for query in queries}
    assert {query: status for query, status in found.items() if status >= 500} == {}
    assert {status for query, status in found.items() if "%00" in query} == {400}


@MODELS
@pytest.mark.parametrize("page", ["change", "history", "delete"])
def test_invalid_row_ids_are_no_server_error(operator: Client, model: type[Model], page: str) -> None:
    rows = {value: operator.get(f"{home(model)}{quote(value, safe='')}/{page}/").status_code for value in VALUES}
    assert rows["\0"] == 400
    assert max(rows.values()) < 500, rows


@MODELS
def test_invalid_selected_rows_are_no_server_error(operator: Client, model: type[Model]) -> None:
    """Whose key is a number refuses what is none; a text that is nobody's key selects nothing."""
    request = operator.get(home(model)).wsgi_request
    actions = [*admin.site._registry[model].get_actions(request), "\0", "nonsense"]
    sent = [{"action": action, "_selected_action": [value]} for action in actions for value in VALUES]
    sent += [{"action": action, "index": value, "select_across": value} for action in actions for value in VALUES]
    found = {json.dumps(form): operator.post(home(model), form).status_code for form in sent}
    assert {form: status for form, status in found.items() if status >= 500} == {}
    assert {status for form, status in found.items() if r"\u0000" in form} == {400}


@pytest.mark.parametrize(
    "address",
    [
        "admin/", "admin/?x=", "admin/search/?s=", "admin/login/?next=", "admin/autocomplete/?term=", "admin/r/",
        "sign-in?next=", "auth/link/",
    ],
)  # fmt: skip
def test_invalid_parameters_of_other_pages_are_no_server_error(operator: Client, address: str) -> None:
    found = {value: operator.get(f"/{address}{quote(value, safe='')}").status_code for value in VALUES}
    assert found["\0"] == 400
    assert max(found.values()) < 500, found


def test_invalid_input_is_explained_in_the_readers_language(operator: Client) -> None:
    refused = operator.get("/admin/", {"q": "\0"})
    assert "NUL" in refused.content.decode()
    chinese = operator.get("/admin/", {"q": "\0"}, headers={"Accept-Language": "zh"})
    assert "NUL 字符" in chinese.content.decode()
    odd = operator.post(home(User), {"action": "delete_selected", "_selected_action": "x"})
    assert (odd.status_code, "x" in odd.content.decode()) == (400, True)


DEEP = '{"a": ' + "[" * 2000 + "]" * 2000 + "}"


@pytest.mark.parametrize(
    ("connection", "why"),
    [
        ("null", "may not be null"), ("[1]", "dictionary"), ('"x"', "dictionary"), (DEEP, "valid JSON"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "nested more than 64 levels"), (r'{"\ud800": 1}', "valid JSON"),
        (r'{"a": "\u0000"}', "NUL character"), ('{"a": NaN}', "valid JSON"), ("9" * 5000, "valid JSON"),
        ('{"a": 1}', "A connection has no key a"), ("x", "valid JSON"),
    ],
)  # fmt: skip
def test_a_connection_is_validated_as_in_the_api(operator: Client, connection: str, why: str) -> None:
    address = reverse("admin:clusters_cluster_add")
    shown = operator.post(address, {"name": "x", "backend": "local", "connection": connection})
    assert (shown.status_code, Cluster.objects.count()) == (200, 0)
    page = shown.content.decode()
    assert why in page
    assert connection[:40] in page.replace("&quot;", '"'), "what was typed is shown again"


def test_a_connection_error_is_in_chinese_for_chinese_readers(operator: Client) -> None:
    form = {"name": "x", "backend": "local", "connection": "null"}
    shown = operator.post(reverse("admin:clusters_cluster_add"), form, headers={"Accept-Language": "zh"})
    assert "该字段" in shown.content.decode()


@MODELS
def test_invalid_json_in_any_form_is_no_server_error(operator: Client, model: type[Model]) -> None:
    console = admin.site._registry[model]
    request = operator.get(home(model)).wsgi_request
    form = console.get_form(request, change=False).base_fields if console.has_add_permission(request) else {}
    found = {
        (name, sent[:20]): operator.post(f"{home(model)}add/", {name: sent}).status_code
        for name, field in form.items()
        if isinstance(field, JSONField)
        for sent in ("null", DEEP, r'{"\ud800": 1}')
    }
    assert {sent: status for sent, status in found.items() if status >= 500} == {}


def test_an_invalid_session_cookie_is_no_server_error(operator: Client) -> None:
    """Quoted, with octal escapes, it gets past every check of what a header may hold."""
    named = r'sessionid="' + r"\000" * 32 + '"'
    for address in ("/admin/", "/api/v1/projects", "/_allauth/browser/v1/auth/session"):
        assert Client(raise_request_exception=False).get(address, headers={"Cookie": named}).status_code == 400


@pytest.mark.parametrize("field", ["name", "backend"])
@pytest.mark.parametrize("value", VALUES)
def test_an_invalid_cluster_name_is_no_server_error(operator: Client, field: str, value: str) -> None:
    form = {"name": "x", "backend": "local", "connection": "{}", field: value}
    assert operator.post(reverse("admin:clusters_cluster_add"), form).status_code < 500

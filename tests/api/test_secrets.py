"""Secrets of a project: write-only, by name."""

import gzip
import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from apps.accounts import encryption, secrets
from apps.accounts.models import AuditEvent, Secret
from apps.common.clock import now
from apps.training.models import Task
from apps.training.reconcile import reconciler
from tests.api.conftest import Api
from tests.api.test_tasks_create import DOCUMENT

SECRETS = "/projects/project-one/secrets"
VALUE = "wandb-0123456789 \"'$\n汉"


@pytest.fixture
def wandb(owner: Api) -> Api:
    set_secret(owner, "wandb")
    return owner


def set_secret(api: Api, name: str, value: Any = VALUE, path: str = SECRETS) -> Any:
    return api._send("PUT", f"{path}/{name}", {"value": value})


def request(**changes: Any) -> dict[str, Any]:
    return {**DOCUMENT, "secretEnv": {"WANDB_API_KEY": "wandb"}, **changes}


# Who may do what ------------------------------------------------------------------------------------------------------


def test_maintainers_set_replace_and_remove_secrets_and_no_value_is_returned(owner: Api, colleague: Api) -> None:
    answers = [
        set_secret(owner, "wandb"),
        set_secret(owner, "wandb", "another"),
        owner.get(SECRETS),
        colleague.get(SECRETS),
    ]
    assert [answer.status for answer in answers] == [200] * 4
    [item] = answers[2].data["items"]
    assert item.keys() == {"name", "createdAt", "createdBy", "updatedAt", "updatedBy"}
    assert (item["name"], item["createdBy"], item["updatedBy"]) == ("wandb", "owner", "owner")
    assert item["updatedAt"] > item["createdAt"]
    for answer in answers:
        assert VALUE not in json.dumps(answer.body, ensure_ascii=False)
    assert secrets.reveal_secrets("project-one", {"K": "wandb"}) == {"K": "another"}
    assert owner.delete(f"{SECRETS}/wandb").status == 200
    assert owner.delete(f"{SECRETS}/wandb").status == 404
    assert owner.get(SECRETS).data["total"] == 0


@pytest.mark.parametrize("name", ["no%20name", "a%2Fb", "no%2F"])
def test_an_invalid_name_is_reported_even_with_slashes(name: str, owner: Api) -> None:
    assert set_secret(owner, name).error == "SECRET_NAME_INVALID"


@pytest.mark.parametrize("who", ["viewer", "colleague"])
def test_only_maintainers_change_secrets(who: str, wandb: Api, request: pytest.FixtureRequest) -> None:
    api: Api = request.getfixturevalue(who)
    assert set_secret(api, "wandb").error == "FORBIDDEN"
    assert api.delete(f"{SECRETS}/wandb").error == "FORBIDDEN"
    assert [item["name"] for item in api.get(SECRETS).data["items"]] == ["wandb"], "names are no secret"


def test_strangers_see_no_secrets(wandb: Api, stranger: Api, anonymous: Api) -> None:
    assert [
        stranger.get(SECRETS).status,
        set_secret(stranger, "x").status,
        stranger.delete(f"{SECRETS}/wandb").status,
    ] == [404] * 3
    assert anonymous.get(SECRETS).status == 401


@pytest.mark.parametrize("name", ["-x", "a b", "x" * 64, "ü", "a%2Fb"])
def test_an_invalid_name_is_refused(owner: Api, name: str) -> None:
    assert set_secret(owner, name).status in (400, 404)
    assert not Secret.objects.exists()


@pytest.mark.parametrize("value", ["", 7, None, "x" * 32_001, "a\0b", ["sesame-street"]])
def test_an_invalid_value_is_refused_and_not_echoed(owner: Api, value: Any) -> None:
    answer = set_secret(owner, "wandb", value)
    assert (answer.status, list(answer.problems)) == (400, ["value"])
    assert "sesame" not in json.dumps(answer.body)
    assert "x" * 100 not in json.dumps(answer.body)


@pytest.mark.database
def test_secrets_are_encrypted_and_the_audit_log_has_only_names(wandb: Api) -> None:
    stored = Secret.objects.get().value
    assert "wandb" not in stored
    assert encryption.decrypt_value(stored) == VALUE
    set_secret(wandb, "wandb", "another")
    wandb.delete(f"{SECRETS}/wandb")
    trail = (
        AuditEvent.objects.filter(action__startswith="secret.").order_by("id").values_list("action", "target", "data")
    )
    assert list(trail) == [
        ("secret.create", "wandb", {}),
        ("secret.replace", "wandb", {}),
        ("secret.delete", "wandb", {}),
    ]


def test_an_empty_project_is_deleted_with_its_secrets(wandb: Api, admin: Api) -> None:
    assert admin.delete("/projects/project-one").status == 200
    assert not Secret.objects.exists()


# In a request ---------------------------------------------------------------------------------------------------------

with_inventory = pytest.mark.usefixtures("environments", "dataset", "model")


@with_inventory
def test_all_problems_of_secret_variables_are_reported(wandb: Api, colleague: Api) -> None:
    names = {"A": "nothing", "RANK": "wandb", "1X": "wandb", "BOTH": "wandb"}
    answer = colleague.post("/training-tasks", request(secretEnv=names, env={"BOTH": "x"}, taskName=""))
    assert answer.problems == {
        "taskName": "NAME_REQUIRED",
        "secretEnv.A": "SECRET_UNKNOWN",
        "secretEnv.RANK": "ENV_RESERVED",
        "secretEnv.1X": "ENV_NAME_INVALID",
        "secretEnv.BOTH": "ENV_TWICE",
    }


@with_inventory
def test_a_secret_of_another_project_is_unknown(stranger: Api, colleague: Api) -> None:
    set_secret(stranger, "wandb", path="/projects/project-two/secrets")
    assert colleague.post("/training-tasks", request()).problems == {"secretEnv.WANDB_API_KEY": "SECRET_UNKNOWN"}


@with_inventory
def test_a_task_shows_names_of_secrets_and_never_values(wandb: Api, colleague: Api, viewer: Api) -> None:
    preview = colleague.post("/training-tasks/preview", request())
    assert preview.data["problems"] == []
    assert preview.data["ranks"][0]["env"]["WANDB_API_KEY"] == "<secret wandb>"
    task = colleague.post("/training-tasks", request()).data["taskId"]
    reconciler.reconcile_tasks(task)
    answers = [preview, colleague.post(f"/training-tasks/{task}/clone")]
    for who in (colleague, viewer):
        answers += [who.get(f"/training-tasks/{task}{part}") for part in ("", "/events", "/plan")]
    for answer in answers:
        assert "0123456789" not in (answer.body if isinstance(answer.body, str) else json.dumps(answer.body))
    assert answers[1].data["request"]["secretEnv"] == {"WANDB_API_KEY": "wandb"}
    row = Task.objects.get(pk=task)
    assert row.spec["secret_env"] == {"WANDB_API_KEY": "wandb"}


# Until an attempt starts ----------------------------------------------------------------------------------------------


def looked_at_again(task: str) -> Task:
    Task.objects.filter(pk=task).update(due_at=now() - timedelta(seconds=1))
    reconciler.reconcile_tasks(task)
    return Task.objects.get(pk=task)


@with_inventory
def test_a_task_whose_secret_was_removed_waits_and_names_it(wandb: Api, colleague: Api) -> None:
    task = colleague.post("/training-tasks", request()).data["taskId"]
    wandb.delete(f"{SECRETS}/wandb")
    row = looked_at_again(task)
    assert (row.state, row.reason) == ("queued", "SECRET_MISSING")
    colleague.lang = "en"
    reason = colleague.get(f"/training-tasks/{task}").data["reason"]
    assert "wandb" in reason["message"]
    assert "WANDB_API_KEY" in reason["message"]
    assert "fermi secrets set wandb" in reason["hint"]
    set_secret(wandb, "wandb")
    assert looked_at_again(task).reason != "SECRET_MISSING"


@with_inventory
def test_after_a_change_of_the_secret_key_a_task_waits_for_a_new_value(wandb: Api, colleague: Api) -> None:
    task = colleague.post("/training-tasks", request()).data["taskId"]
    with override_settings(SECRET_KEY="another one"):
        row = looked_at_again(task)
        assert (row.state, row.reason) == ("queued", "SECRET_UNREADABLE")
        assert wandb.get(SECRETS).status == 200
        assert colleague.post("/training-tasks/preview", request()).data["problems"] == []
        set_secret(wandb, "wandb", "new")
        assert looked_at_again(task).reason != "SECRET_UNREADABLE"


# Keys in plain variables ----------------------------------------------------------------------------------------------

PLAIN = {"WANDB_API_KEY": "local-sesame-0123456789", "NCCL_DEBUG": "INFO"}


@with_inventory
def test_a_variable_that_looks_like_a_key_gives_a_warning(colleague: Api) -> None:
    colleague.lang = "en"
    warnings = colleague.post("/training-tasks/preview", {**DOCUMENT, "env": PLAIN}).data["warnings"]
    [warning] = [one for one in warnings if one["code"] == "ENV_LOOKS_SECRET"]
    assert "WANDB_API_KEY" in warning["message"]
    assert "secretEnv" in warning["hint"]
    assert "sesame" not in json.dumps(warnings)


@with_inventory
def test_viewers_do_not_see_values_that_look_like_keys(colleague: Api, viewer: Api) -> None:
    task = colleague.post("/training-tasks", {**DOCUMENT, "env": PLAIN}).data["taskId"]
    reconciler.reconcile_tasks(task)
    for who, readable in ((colleague, True), (viewer, False)):
        told = [
            who.get(f"/training-tasks/{task}").data["request"]["env"],
            who.post(f"/training-tasks/{task}/clone").data["request"]["env"],
        ]
        assert [env["NCCL_DEBUG"] for env in told] == ["INFO", "INFO"]
        assert ["sesame" in env["WANDB_API_KEY"] for env in told] == [readable] * 2
        assert ("sesame" in json.dumps(who.get(f"/training-tasks/{task}/plan").body)) is readable
        scripts = gzip.decompress(who.get(f"/training-tasks/{task}/scripts").body)
        assert (b"sesame" in scripts) is readable

import pytest

from apps.accounts.models import Project
from apps.clusters.models import DevEnvironment
from tests.api.conftest import Api, make_user

pytestmark = pytest.mark.database


def test_me_lists_my_projects_and_roles(colleague: Api, other_project: Project) -> None:
    me = colleague.get("/auth/me").data
    assert (me["username"], me["isAdministrator"], me["language"]) == ("colleague", False, "zh")
    assert [(project["id"], project["role"]) for project in me["projects"]] == [("project-one", "member")]


def test_the_administrator_is_maintainer_everywhere(admin: Api, project: Project, other_project: Project) -> None:
    me = admin.get("/auth/me").data
    assert me["isAdministrator"]
    assert {project["role"] for project in me["projects"]} == {"maintainer"}
    assert len(me["projects"]) == 2


def test_a_list_has_only_the_users_projects(viewer: Api, stranger: Api) -> None:
    assert viewer.get("/projects").ids == ["project-one"]
    assert stranger.get("/projects").ids == ["project-two"]


def test_strangers_do_not_learn_that_a_project_exists(stranger: Api, project: Project) -> None:
    for answer in (
        stranger.get("/projects/project-one"),
        stranger.patch("/projects/project-one", {"name": "mine"}),
        stranger.get("/projects/project-one/members"),
        stranger.post("/projects/project-one/members", {"username": "stranger"}),
        stranger.get("/audit-events", project="project-one"),
    ):
        assert (answer.status, answer.error) == (404, "NOT_FOUND")


def test_only_administrators_create_projects(admin: Api, owner: Api) -> None:
    assert owner.post("/projects", {"name": "mine"}).error == "FORBIDDEN"
    made = admin.post("/projects", {"name": "vision"})
    assert made.status == 201
    assert admin.get(f"/projects/{made.data['id']}").data["name"] == "vision"


def test_a_project_name_is_unique(admin: Api, owner: Api, other_project: Project) -> None:
    answer = admin.post("/projects", {"name": "two"})
    assert (answer.status, answer.problems) == (409, {"name": "PROJECT_NAME_TAKEN"})
    assert owner.patch("/projects/project-one", {"name": "two"}).status == 409


@pytest.mark.parametrize("who", ["viewer", "colleague"])
def test_only_maintainers_rename_and_manage_members(who: str, request: pytest.FixtureRequest) -> None:
    api: Api = request.getfixturevalue(who)
    for answer in (
        api.patch("/projects/project-one", {"name": "mine"}),
        api.post("/projects/project-one/members", {"username": who}),
        api.patch(f"/projects/project-one/members/{who}", {"role": "maintainer"}),
        api.delete(f"/projects/project-one/members/{who}"),
    ):
        assert (answer.status, answer.error) == (403, "FORBIDDEN")


def test_a_maintainer_adds_changes_and_removes_members(owner: Api) -> None:
    make_user("new")
    members = "/projects/project-one/members"
    assert owner.post(members, {"username": "new"}).data == {"username": "new", "role": "member"}
    assert owner.post(members, {"username": "new"}).error == "ALREADY_MEMBER"
    assert owner.patch(f"{members}/new", {"role": "viewer"}).data["role"] == "viewer"
    assert [item["username"] for item in owner.get(members).data["items"]] == ["new", "owner"]
    assert owner.delete(f"{members}/new").status == 200
    assert owner.delete(f"{members}/new").status == 404


def test_an_unknown_user_cannot_be_added(owner: Api) -> None:
    answer = owner.post("/projects/project-one/members", {"username": "nobody"})
    assert (answer.status, answer.problems) == (400, {"username": "USER_UNKNOWN"})


def test_only_an_empty_project_can_be_deleted(admin: Api, environments: dict[str, DevEnvironment]) -> None:
    answer = admin.delete("/projects/project-one")
    assert (answer.status, answer.error) == (409, "PROJECT_NOT_EMPTY")
    DevEnvironment.objects.all().delete()
    assert admin.delete("/projects/project-one").status == 200
    assert not Project.objects.exists()


def test_the_audit_log_has_user_action_and_request_id(owner: Api, colleague: Api) -> None:
    make_user("new")
    owner.post("/projects/project-one/members", {"username": "new"}, X_Request_ID="from-the-test")
    event = owner.get("/audit-events", project="project-one").data["items"][0]
    assert (event["actor"], event["action"], event["target"]) == ("owner", "member.add", "new")
    assert (event["project"], event["requestId"]) == ("project-one", "from-the-test")
    assert colleague.get("/audit-events", project="project-one").error == "FORBIDDEN"
    assert colleague.get("/audit-events").data["total"] == 0


def test_maintainers_see_the_audit_log_of_their_projects_only(owner: Api, stranger: Api, admin: Api) -> None:
    owner.patch("/projects/project-one", {"name": "renamed"})
    stranger.post("/tokens", {"name": "x"})
    assert [item["action"] for item in owner.get("/audit-events").data["items"]] == ["project.rename"]
    assert stranger.get("/audit-events").data["total"] == 0
    assert admin.get("/audit-events").data["total"] == 2

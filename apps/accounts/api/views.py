"""Endpoints of users, projects, members, secrets and the audit trail."""

from django.conf import settings
from rest_framework.permissions import AllowAny

from apps.accounts import access, selectors, services
from apps.accounts import secrets as project_secrets
from apps.accounts.api import serializers as shapes
from apps.accounts.models import Project, Role
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.texts import get_request_language


class MeView(APIView):
    @operation("getMe", scope="any", data=shapes.Me)
    def get(self, request: Request) -> Data:
        """Return the signed-in user and their role in each project."""
        return selectors.serialize_user(request.user, get_request_language())


class SignInView(APIView):
    """Serves the sign-in page, so it needs no sign-in."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @operation("getSignIn", scope="any", data=shapes.SignIn)
    def get(self, request: Request) -> Data:
        """Return what the sign-in page needs to know: whether this is an embedded platform, which has one-time sign-in
        links."""
        return {"embedded": (settings.DATA_DIR / "run" / "url").exists()}


class SavedViewsView(APIView):
    @operation("listSavedViews", scope="account:read", query=shapes.SavedViewQuery, page=shapes.SavedViewItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the views of the console's lists that you have saved."""
        rows = selectors.list_saved_views(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows.filter(section=query["section"]) if query.get("section") else rows, query)

    @operation("saveView", scope="account:write", body=shapes.SavedViewRequest, data=shapes.SavedViewItem, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Save how a list is filtered and sorted; replaces the view that you saved under the same name."""
        return services.save_view(request.user, **body)


class SavedViewView(APIView):
    @operation("deleteSavedView", scope="account:write")
    def delete(self, request: Request, view_id: str) -> None:
        """Delete one of your saved views. What it lists stays as it is."""
        services.delete_saved_view(request.user, view_id)


class ProjectsView(APIView):
    @operation("listProjects", scope="projects:read", query=shapes.ProjectQuery, page=shapes.ProjectItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the projects in which you have a role; all projects for an administrator."""
        return paginate_rows(selectors.list_projects(request.user).filter(name__icontains=query["search"]), query)

    @operation("createProject", scope="projects:write", body=shapes.ProjectRequest, data=shapes.ProjectItem, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Create a project (administrator). 409 where the name is taken."""
        return _serialize_project(services.create_project(request.user, **body), Role.MAINTAINER)


class ProjectView(APIView):
    @operation("getProject", scope="projects:read", data=shapes.ProjectItem)
    def get(self, request: Request, project_id: str) -> Data:
        """Return one project."""
        project = access.get_project(request.user, project_id)
        return _serialize_project(project, access.get_role(request.user, project))

    @operation("renameProject", scope="projects:write", body=shapes.ProjectRequest, data=shapes.ProjectItem)
    def patch(self, request: Request, project_id: str, body: Body) -> Data:
        """Rename a project (maintainer). 409 where the name is taken."""
        project = access.get_project(request.user, project_id)
        services.rename_project(request.user, project, **body)
        return _serialize_project(project, Role.MAINTAINER)

    @operation("deleteProject", scope="projects:write")
    def delete(self, request: Request, project_id: str) -> None:
        """Delete an empty project (administrator). 409 where it still contains anything."""
        services.delete_project(request.user, access.get_project(request.user, project_id))


class MembersView(APIView):
    @operation("listMembers", scope="projects:read", query=shapes.MemberQuery, page=shapes.MemberItem)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """List the members of a project with their roles."""
        members = selectors.list_members(access.get_project(request.user, project_id))
        return paginate_rows(members.filter(user__username__icontains=query["search"]), query)

    @operation("addMember", scope="projects:write", body=shapes.MemberAddRequest, data=shapes.MemberItem, status=201)
    def post(self, request: Request, project_id: str, body: Body) -> Data:
        """Add a user to a project (maintainer). 409 where they are a member already."""
        return services.add_member(request.user, access.get_project(request.user, project_id), **body)


class MemberView(APIView):
    @operation("changeMember", scope="projects:write", body=shapes.MemberChangeRequest, data=shapes.MemberItem)
    def patch(self, request: Request, project_id: str, username: str, body: Body) -> Data:
        """Change a member's role (maintainer)."""
        return services.change_role(request.user, access.get_project(request.user, project_id), username, **body)

    @operation("removeMember", scope="projects:write")
    def delete(self, request: Request, project_id: str, username: str) -> None:
        """Remove a member from a project (maintainer)."""
        services.remove_member(request.user, access.get_project(request.user, project_id), username)


class SecretsView(APIView):
    @operation("listSecrets", scope="secrets:read", query=shapes.SecretQuery, page=shapes.SecretItem)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """List the names of a project's secrets, with who set each one and when. Values are never returned."""
        secrets = project_secrets.list_secrets(access.get_project(request.user, project_id))
        return paginate_rows(secrets.filter(name__icontains=query["search"]), query)


class SecretView(APIView):
    @operation("putSecret", scope="secrets:write", body=shapes.SecretRequest, data=shapes.SecretItem)
    def put(self, request: Request, project_id: str, name: str, body: Body) -> Data:
        """Create a secret or replace its value (maintainer). Tasks name it in `secretEnv`; each one's next attempt gets
        the new value."""
        return project_secrets.set_secret(
            request.user, access.get_project(request.user, project_id), name, body["value"]
        )

    @operation("deleteSecret", scope="secrets:write")
    def delete(self, request: Request, project_id: str, name: str) -> None:
        """Delete a secret with its value (maintainer). Tasks that name it wait until a secret of that name exists
        again."""
        project_secrets.delete_secret(request.user, access.get_project(request.user, project_id), name)


def _serialize_project(project: Project, role: Role | None) -> dict:
    return {"id": project.id, "name": project.name, "role": role, "warm": project.warm, "createdAt": project.created_at}

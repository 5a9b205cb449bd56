"""Endpoints of sessions, and of the accounts of people."""

from typing import Any

from rest_framework import serializers

from apps.accounts import people, sessions
from apps.accounts.api.serializers import Role
from apps.accounts.models import MembershipSource, User
from apps.accounts.revocation import ALL_TOKENS, end_access
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.pages import OrderingField, PageQuery, ShortQuery, paginate_items


class SessionItem(serializers.Serializer):
    id = serializers.CharField()
    device = serializers.CharField(help_text="browser and system in words, as far as they are known")
    userAgent = serializers.CharField(help_text="what the browser calls itself")
    address = serializers.CharField(help_text="from which it was used last; empty where not known")
    createdAt = serializers.DateTimeField()
    lastSeenAt = serializers.DateTimeField(help_text="exact to a minute")
    current = serializers.BooleanField(help_text="the session of this request")


class SessionsEndRequest(serializers.Serializer):
    WHOLE = True

    tokens = serializers.BooleanField(help_text="revoke all API tokens, too")


class EndedAccess(serializers.Serializer):
    sessions = serializers.IntegerField()
    tokens = serializers.IntegerField()


class PersonProject(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField(Role.choices)
    source = serializers.ChoiceField(MembershipSource.choices)  # type: ignore[assignment]


class PersonItem(serializers.Serializer):
    username = serializers.CharField()
    name = serializers.CharField()
    email = serializers.CharField()
    isActive = serializers.BooleanField()
    isAdministrator = serializers.BooleanField()
    isOperator = serializers.BooleanField(help_text="may open the operators' console")
    isService = serializers.BooleanField(help_text="a service account of a project")
    hasPassword = serializers.BooleanField()
    hasSecondFactor = serializers.BooleanField()
    providers = serializers.ListField(child=serializers.CharField(), help_text="identity providers of the account")
    createdAt = serializers.DateTimeField()
    lastSignInAt = serializers.DateTimeField(allow_null=True)
    projects = PersonProject(many=True)


class Invitation(serializers.Serializer):
    path = serializers.CharField(help_text="at the platform's address; signs in once. Shown this once")
    expiresAt = serializers.DateTimeField()


class PersonCreated(serializers.Serializer):
    person = PersonItem()
    invitation = Invitation()


class PeopleQuery(PageQuery):
    service = serializers.BooleanField(default=False, help_text="service accounts instead of people")
    active = serializers.BooleanField(required=False, allow_null=True, default=None)
    administrator = serializers.BooleanField(default=False, help_text="administrators only")
    ordering = OrderingField("username", username="username", createdAt="date_joined")


class PersonCreateRequest(serializers.Serializer):
    username = serializers.CharField(max_length=150)
    email = serializers.EmailField(max_length=254, required=False, allow_blank=True, default="")


class PersonChangeRequest(serializers.Serializer):
    isActive = serializers.BooleanField(source="is_active", required=False)
    isAdministrator = serializers.BooleanField(source="is_superuser", required=False)
    isOperator = serializers.BooleanField(source="is_staff", required=False)


class SessionsView(APIView):
    @operation("listSessions", scope="account:read", query=ShortQuery, page=SessionItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the browsers in which you are signed in, the last used first."""
        return paginate_items(sessions.list_sessions(request.user, _get_session_key(request)), query)


class SessionsEndView(APIView):
    @operation("endSessions", scope="account:write", body=SessionsEndRequest, data=EndedAccess)
    def post(self, request: Request, body: Body) -> Data:
        """Sign out everywhere, in this browser too; with `tokens` all your API tokens are revoked. Tasks go on."""
        return _end_all(request.user, request.user, "signed out everywhere", body["tokens"])


class SessionView(APIView):
    @operation("endSession", scope="account:write")
    def delete(self, request: Request, session_id: str) -> None:
        """End one of your sessions."""
        sessions.end_session(request.user, request.user, session_id)


class PeopleView(APIView):
    @operation("listPeople", scope="people:read", query=PeopleQuery, page=PersonItem)
    def get(self, request: Request, query: Query) -> Data:
        """List accounts with their roles and how they sign in (administrator)."""
        rows = people.list_people(
            request.user, query["search"], service=query["service"], active=query["active"],
            administrator=query["administrator"],
        )  # fmt: skip
        page = paginate_rows(rows, query)
        return {**page, "items": people.serialize_people(page["items"])}

    @operation("createPerson", scope="people:write", body=PersonCreateRequest, data=PersonCreated, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Create an account (administrator). The answer has a link that signs the person in once, to set a password.
        409 where the name or the address is taken."""
        person, invitation = people.create_person(request.user, **body)
        return {"person": _serialize_person(person), "invitation": invitation}


class PersonView(APIView):
    @operation("getPerson", scope="people:read", data=PersonItem)
    def get(self, request: Request, username: str) -> Data:
        """Return one account (administrator)."""
        return _serialize_person(people.get_person(request.user, username))

    @operation("changePerson", scope="people:write", body=PersonChangeRequest, partial=True, data=PersonItem)
    def patch(self, request: Request, username: str, body: Body) -> Data:
        """Activate or deactivate an account, and set whether it is an administrator's or an operator's
        (administrator). Deactivating ends all sessions and tokens. 409 for yourself and the last administrator."""
        return _serialize_person(people.change_person(request.user, username, **body))


class InvitationView(APIView):
    @operation("createInvitation", scope="people:write", data=Invitation, status=201)
    def post(self, request: Request, username: str) -> Data:
        """Make a link that signs a person in once, to set a new password (administrator). Their password is void from
        now on, and their sessions end. 409 where they have a second factor."""
        return people.create_invitation(request.user, username)


class SecondFactorsView(APIView):
    @operation("resetSecondFactors", scope="people:write")
    def delete(self, request: Request, username: str) -> None:
        """Delete the second factors of a person who has lost them, and end their sessions (administrator)."""
        people.reset_second_factors(request.user, username)


class PersonSessionsView(APIView):
    @operation("listPersonSessions", scope="people:read", query=ShortQuery, page=SessionItem)
    def get(self, request: Request, username: str, query: Query) -> Data:
        """List the browsers in which a person is signed in (administrator)."""
        person = people.get_person(request.user, username)
        return paginate_items(sessions.list_sessions(person, _get_session_key(request)), query)


class PersonSessionsEndView(APIView):
    @operation("endPersonSessions", scope="people:write", body=SessionsEndRequest, data=EndedAccess)
    def post(self, request: Request, username: str, body: Body) -> Data:
        """Sign a person out everywhere; with `tokens` their API tokens are revoked (administrator). Tasks go on."""
        person = people.get_person(request.user, username)
        return _end_all(request.user, person, "signed out by an administrator", body["tokens"])


class PersonSessionView(APIView):
    @operation("endPersonSession", scope="people:write")
    def delete(self, request: Request, username: str, session_id: str) -> None:
        """End one session of a person (administrator)."""
        sessions.end_session(request.user, people.get_person(request.user, username), session_id)


def _end_all(actor: User, person: User, reason: str, tokens: bool) -> dict[str, int]:
    ended = end_access(person, reason, actor=actor, tokens=ALL_TOKENS if tokens else None)
    return {"sessions": ended.sessions, "tokens": ended.tokens}


def _get_session_key(request: Any) -> str:
    return request.session.session_key or ""


def _serialize_person(person: User) -> dict[str, Any]:
    return people.serialize_people([person])[0]

"""The addresses below /scim/v2: SCIM 2.0 as directories speak it, with SCIM's own shape of errors."""

from collections.abc import Mapping
from typing import Any, cast

from django.conf import settings
from drf_spectacular.utils import extend_schema
from pydantic import ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from scim2_models import (
    Context,
    Error,
    ListResponse,
    Meta,
    NotImplementedException,
    PatchOp,
    Resource,
    ResponseParameters,
    SCIMException,
    SearchRequest,
)

from apps.common import rate_limits
from apps.common.bounds import MAX_DEPTH
from apps.common.errors import ApiError
from apps.common.exception_handler import handle_exception
from apps.common.renderers import JSONParser, JSONRenderer
from apps.directory.api.authentication import DirectoryAuthentication, DirectoryCaller, IsDirectory
from apps.directory.models import Directory, DirectoryUser, Group
from apps.directory.scim import groups, people, queries
from apps.directory.scim.resources import MAX_OPERATIONS, POLICY, SERVICE, ScimGroup, ScimUser

BASE_PATH = "/scim/v2"
MAX_QUERY_LENGTH = 2_000
SCIM_TYPES = {
    "EMAIL_TAKEN": "uniqueness",
    "FIELD_INVALID": "invalidValue",
    "IDENTITY_UID_TAKEN": "uniqueness",
    "NUL_CHARACTER": "invalidValue",
    "SCIM_ADMINISTRATOR": "mutability",
    "SCIM_FILTER_UNSUPPORTED": "invalidFilter",
    "SCIM_GROUP_EXISTS": "uniqueness",
    "SCIM_MEMBERS_TOO_MANY": "tooMany",
    "SCIM_MEMBER_UNKNOWN": "invalidValue",
    "SCIM_USER_EXISTS": "uniqueness",
    "SCIM_USER_NAME_TAKEN": "uniqueness",
    "PARSE_ERROR": "invalidSyntax",
    "BODY_TOO_DEEP": "invalidSyntax",
    "BODY_TOO_MANY_VALUES": "tooMany",
}
"""SCIM's word (RFC 7644, 3.12) for codes of the platform."""


class ScimParser(JSONParser):
    media_type = "application/scim+json"


class AnyJsonParser(JSONParser):
    """Reads a body as JSON, whatever its Content-Type says: some directories send none."""

    media_type = "*/*"


class ScimRenderer(JSONRenderer):
    media_type = "application/scim+json"
    format = "scim"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return JSON, and nothing for an answer 204: bytes behind it would be read as the next answer."""
        return b"" if data is None else super().render(data, accepted_media_type, renderer_context)


class WithinDirectoryRateLimit(BasePermission):
    """Counts a request against the directory's limit, which is that of an API token."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return True. Raises ApiError 429 RATE_LIMITED."""
        if isinstance(request.successful_authenticator, DirectoryAuthentication):
            state = rate_limits.count_request("directory", str(request.user.pk), settings.RATE_LIMIT)
            request._request.rate_state = state  # type: ignore[attr-defined]
            if state and not state.allowed:
                raise ApiError(429, "RATE_LIMITED", seconds=state.retry_after, limit=state.limit)
        return True


@extend_schema(exclude=True)
class ScimView(APIView):
    """What all addresses share."""

    authentication_classes = (DirectoryAuthentication,)
    permission_classes = (WithinDirectoryRateLimit, IsDirectory)
    parser_classes: tuple[type[BaseParser], ...] = (ScimParser, AnyJsonParser)
    renderer_classes = (ScimRenderer,)

    def handle_exception(self, exc: Exception) -> Response:
        """Return an error in SCIM's shape."""
        headers: Mapping[str, str] = {}
        if isinstance(exc, ValidationError):
            error = Error.from_validation_errors(exc)[0]
        elif isinstance(exc, SCIMException):
            error = exc.to_error()
        else:
            if isinstance(exc, Exception) and getattr(exc, "status_code", None) == 401:
                exc.auth_header = self.get_authenticate_header(self.request)  # type: ignore[attr-defined]
            response = handle_exception(exc, self.get_exception_handler_context())
            first = response.data["errors"][0]
            detail = " ".join(part for part in (first["message"], first["hint"]) if part)
            error = Error(status=response.status_code, scim_type=SCIM_TYPES.get(first["error"]), detail=detail)
            headers = {name: value for name, value in response.headers.items() if name != "Content-Type"}
        return Response(error.model_dump(), status=error.status or 400, headers=headers)

    @property
    def directory(self) -> Directory:
        return cast(DirectoryCaller, self.request.user).directory

    def read_query(self, model: type[Resource[Any]]) -> SearchRequest[Any]:
        """Return the query. Raises ValidationError and ApiError for one that is too long or names what there is not."""
        given = self.request.query_params.dict()
        for name, value in given.items():
            if len(value) > MAX_QUERY_LENGTH:
                raise ApiError(400, "FIELD_INVALID", name, detail=f"> {MAX_QUERY_LENGTH}")
        known = ("filter", "startIndex", "count", "attributes", "excludedAttributes")
        query: Any = SearchRequest[model]  # type: ignore[valid-type]
        return query.model_validate({name: given[name] for name in known if name in given})

    def read_resource(self, model: type[Resource[Any]], context: Context) -> Any:
        """Return the body as a resource. Raises ValidationError."""
        return model.model_validate(self.read_object(), scim_ctx=context)

    def read_patch(self, model: type[Resource[Any]]) -> Any:
        """Return the body as a patch. Raises ValidationError and ApiError."""
        body = self.read_object()
        operations = body.get("Operations", body.get("operations"))
        if isinstance(operations, list) and len(operations) > MAX_OPERATIONS:
            raise ApiError(400, "FIELD_INVALID", "Operations", detail=f"> {MAX_OPERATIONS}")
        patch: Any = PatchOp[model]  # type: ignore[valid-type]
        return patch.model_validate(body, scim_ctx=Context.RESOURCE_PATCH_REQUEST)

    def read_object(self) -> dict[str, Any]:
        """Return the body. Raises ApiError 400 unless it is an object that can be stored."""
        body = self.request.data
        if not isinstance(body, dict):
            raise ApiError(400, "PARSE_ERROR", detail="not an object")
        _check_values(body)
        return body

    def answer(self, resource: Any, context: Context, status: int = 200) -> Response:
        """Return a resource with the attributes that the query names."""
        query: Any = ResponseParameters[type(resource)]  # type: ignore[misc]
        given = self.request.query_params
        names = query.model_validate(
            {name: given[name] for name in ("attributes", "excludedAttributes") if name in given}
        )
        data = resource.model_dump(scim_ctx=context, response_parameters=names)
        headers = {"Location": resource.meta.location} if resource.meta and status == 201 else {}
        return Response(data, status=status, headers=headers)

    def build_location(self, kind: str, key: str) -> str:
        return self.request.build_absolute_uri(f"{BASE_PATH}/{kind}/{key}")

    def describe_person(self, row: DirectoryUser) -> ScimUser:
        [found] = self.describe_people([row])
        return found

    def describe_people(self, rows: list[DirectoryUser]) -> list[ScimUser]:
        """Return people as the answer shows them: active only if the account is."""
        memberships = people.read_groups(rows)
        found = []
        for row in rows:
            resource = people.make_resource(row)
            resource.active = row.active and row.user.is_active
            resource.groups = memberships[row.pk] or None
            resource.meta = self.make_meta("User", "Users", row)
            found.append(resource)
        return found

    def describe_groups(self, rows: list[Group], *, members: bool = True) -> list[ScimGroup]:
        """Return groups as the answer shows them."""
        found = groups.read_members(rows, self.build_location("Users", "")) if members else {}
        described = []
        for row in rows:
            resource = groups.make_resource(row, found.get(row.pk))
            resource.meta = self.make_meta("Group", "Groups", row)
            described.append(resource)
        return described

    def make_meta(self, kind: str, folder: str, row: DirectoryUser | Group) -> Any:
        return Meta(
            resource_type=kind,
            created=row.created_at,
            last_modified=row.updated_at,
            location=self.build_location(folder, row.pk),
        )

    def answer_list(
        self, model: type[Resource[Any]], rows: list[Any], total: int, query: SearchRequest[Any]
    ) -> Response:
        """Return a page of resources."""
        response: Any = ListResponse[model]  # type: ignore[valid-type]
        found = response(
            total_results=total, start_index=query.start_index or 1, items_per_page=len(rows), resources=rows or None
        )
        data = found.model_dump(scim_ctx=Context.RESOURCE_QUERY_RESPONSE, response_parameters=query)
        return Response(data)

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        with POLICY:
            return super().dispatch(request, *args, **kwargs)


class UsersView(ScimView):
    def get(self, request: Request) -> Response:
        query = self.read_query(ScimUser)
        rows, total = queries.list_people(self.directory, query)
        return self.answer_list(ScimUser, self.describe_people(rows), total, query)

    def post(self, request: Request) -> Response:
        given = self.read_resource(ScimUser, Context.RESOURCE_CREATION_REQUEST)
        row = people.create_person(self.directory, given)
        return self.answer(self.describe_person(row), Context.RESOURCE_CREATION_RESPONSE, 201)


class UserView(ScimView):
    def get(self, request: Request, person_id: str) -> Response:
        row = people.find_person(self.directory, person_id)
        return self.answer(self.describe_person(row), Context.RESOURCE_QUERY_RESPONSE)

    def put(self, request: Request, person_id: str) -> Response:
        given = self.read_resource(ScimUser, Context.RESOURCE_REPLACEMENT_REQUEST)
        row = people.change_person(self.directory, person_id, given)
        return self.answer(self.describe_person(row), Context.RESOURCE_REPLACEMENT_RESPONSE)

    def patch(self, request: Request, person_id: str) -> Response:
        row = people.patch_person(self.directory, person_id, self.read_patch(ScimUser))
        return self.answer(self.describe_person(row), Context.RESOURCE_PATCH_RESPONSE)

    def delete(self, request: Request, person_id: str) -> Response:
        people.delete_person(self.directory, person_id)
        return Response(status=204)


class GroupsView(ScimView):
    def get(self, request: Request) -> Response:
        query = self.read_query(ScimGroup)
        members = _shows_members(query)
        rows, total = queries.list_groups(self.directory, query, members=members)
        return self.answer_list(ScimGroup, self.describe_groups(rows, members=members), total, query)

    def post(self, request: Request) -> Response:
        given = self.read_resource(ScimGroup, Context.RESOURCE_CREATION_REQUEST)
        row = groups.create_group(self.directory, given)
        return self.answer(self.describe_groups([row])[0], Context.RESOURCE_CREATION_RESPONSE, 201)


class GroupView(ScimView):
    def get(self, request: Request, group_id: str) -> Response:
        members = _shows_members(self.read_query(ScimGroup))
        rows = self.describe_groups([groups.find_group(self.directory, group_id)], members=members)
        return self.answer(rows[0], Context.RESOURCE_QUERY_RESPONSE)

    def put(self, request: Request, group_id: str) -> Response:
        given = self.read_resource(ScimGroup, Context.RESOURCE_REPLACEMENT_REQUEST)
        row = groups.change_group(self.directory, group_id, given)
        return self.answer(self.describe_groups([row])[0], Context.RESOURCE_REPLACEMENT_RESPONSE)

    def patch(self, request: Request, group_id: str) -> Response:
        """Answer without the group: a directory that adds one person must not get back 5,000."""
        groups.patch_group(self.directory, group_id, self.read_patch(ScimGroup))
        return Response(status=204)

    def delete(self, request: Request, group_id: str) -> Response:
        groups.delete_group(self.directory, group_id)
        return Response(status=204)


class ServiceView(ScimView):
    def get(self, request: Request) -> Response:
        """Return what this service can."""
        return Response(_describe(SERVICE.config, self.build_location("ServiceProviderConfig", "").rstrip("/")))


class DescriptionsView(ScimView):
    """/ResourceTypes and /Schemas: `kind` is which."""

    kind = "ResourceTypes"

    def get(self, request: Request, key: str | None = None) -> Response:
        if "filter" in request.query_params:  # RFC 7644, section 4
            raise ApiError(403, "FORBIDDEN")
        found = SERVICE.resource_types if self.kind == "ResourceTypes" else SERVICE.schemas
        rows = [_describe(one, self.build_location(self.kind, str(one.id))) for one in found]
        if key is None:
            schema = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
            page = {"totalResults": len(rows), "startIndex": 1, "itemsPerPage": len(rows), "Resources": rows}
            return Response({"schemas": [schema], **page})
        row = next((row for row in rows if row["id"].lower() == key.lower()), None)
        if row is None:
            raise ApiError(404, "NOT_FOUND")
        return Response(row)


class UnknownView(ScimView):
    """Any other address."""

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self.http_method_names = []
        return super().dispatch(request, *args, **kwargs)

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        raise ApiError(404, "NO_SUCH_ADDRESS", path=request.path[:200])


class UnsupportedView(UnknownView):
    """What RFC 7644 lets a service leave out: searches by POST, /Bulk and /Me."""

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedException()


def _describe(one: Any, location: str) -> dict[str, Any]:
    data = cast(dict[str, Any], one.model_dump(scim_ctx=Context.RESOURCE_QUERY_RESPONSE))
    return {**data, "meta": {"resourceType": type(one).__name__, "location": location}}


def _shows_members(query: SearchRequest[Any]) -> bool:
    chosen = [str(path).lower() for path in query.attributes or []]
    left_out = [str(path).lower() for path in query.excluded_attributes or []]
    return not any(path.endswith("members") for path in left_out) and (
        not chosen or any("members" in path for path in chosen)
    )


def _check_values(value: Any, depth: int = 1) -> None:
    """Raise ApiError 400 for U+0000, which no database stores, and for more than MAX_DEPTH levels."""
    if depth > MAX_DEPTH:
        raise ApiError(400, "BODY_TOO_DEEP", high=MAX_DEPTH)
    if isinstance(value, str) and "\x00" in value:
        raise ApiError(400, "NUL_CHARACTER")
    if isinstance(value, dict):
        for key, one in value.items():
            _check_values(key, depth)
            _check_values(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _check_values(one, depth + 1)

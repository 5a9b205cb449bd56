"""What directories read and write: the attributes of SCIM's users and groups that the platform uses. Others are passed
over and never stored; /Schemas says which there are."""

from typing import Annotated, Any

from pydantic import Field
from scim2_models import (
    URN,
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    ComplexAttribute,
    ETag,
    Filter,
    Mutability,
    Patch,
    Reference,
    Required,
    Resource,
    ScimPolicy,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
    Uniqueness,
)

MAX_PAGE = 200
"""Resources in one answer."""
MAX_EMAILS = 20
MAX_MEMBERS = 20_000
"""Members of a group, and of all groups in one answer."""
MAX_OPERATIONS = 1_000
"""Of one PATCH."""

POLICY = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
"""Entra ID sends attributes of other schemas, removes members by value, and sets addresses that are not there."""


class ScimName(ComplexAttribute):
    formatted: Annotated[str | None, Field(max_length=300)] = None
    family_name: Annotated[str | None, Field(max_length=150)] = None
    given_name: Annotated[str | None, Field(max_length=150)] = None


class ScimEmail(ComplexAttribute):
    value: Annotated[str | None, Field(max_length=254)] = None
    type: Annotated[str | None, Field(max_length=40)] = None
    primary: bool | None = None


class ScimGroupOfUser(ComplexAttribute):
    value: Annotated[str | None, Mutability.read_only] = None
    display: Annotated[str | None, Mutability.read_only] = None


class ScimUser(Resource[Any]):
    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Field(max_length=150), Uniqueness.server, Required.true] = None
    name: ScimName | None = None
    display_name: Annotated[str | None, Field(max_length=300)] = None
    active: bool | None = None
    emails: Annotated[list[ScimEmail] | None, Field(max_length=MAX_EMAILS)] = None
    groups: Annotated[list[ScimGroupOfUser] | None, Mutability.read_only] = None


class ScimMember(ComplexAttribute):
    value: Annotated[str | None, Field(max_length=40), Mutability.immutable] = None
    ref: Annotated[Reference["User"] | None, Mutability.immutable] = Field(  # type: ignore[name-defined]  # noqa: F821
        default=None, serialization_alias="$ref", validation_alias="$ref"
    )


class ScimGroup(Resource[Any]):
    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:Group")

    display_name: Annotated[str | None, Field(max_length=200), Uniqueness.server, Required.true] = None
    members: Annotated[list[ScimMember] | None, Field(max_length=MAX_MEMBERS)] = None


SERVICE = ScimProvider(
    models=[ScimUser, ScimGroup],
    config=ServiceProviderConfig(
        patch=Patch(supported=True),
        bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=Filter(supported=True, max_results=MAX_PAGE),
        change_password=ChangePassword(supported=False),
        sort=Sort(supported=False),
        etag=ETag(supported=False),
        authentication_schemes=[
            AuthenticationScheme(
                type=AuthenticationScheme.Type.oauthbearertoken,
                name="Bearer token",
                description="A token that an administrator made for the directory.",
                primary=True,
            )
        ],
    ),
    policy=POLICY,
)

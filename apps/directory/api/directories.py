"""Endpoints of directories, which write people and groups over SCIM, and of their tokens."""

from typing import Any

from rest_framework import serializers

from apps.common.api import APIView, Body, Data, PageQuery, Query, Request, operation, paginate_rows
from apps.directory import directories
from apps.directory.models import Directory, UidAttribute
from apps.identity.models import MAX_ID_LENGTH


class DirectoryQuery(PageQuery):
    pass


class DirectoryRequest(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    provider = serializers.CharField(
        max_length=MAX_ID_LENGTH, default="", allow_blank=True, help_text="identity provider that its people sign in by"
    )
    uidAttribute = serializers.ChoiceField(
        [choice for choice in UidAttribute.values if choice],
        source="uid_attribute",
        default="",
        allow_blank=True,
        help_text="attribute that the provider knows people by; empty: they are not linked to it",
    )


class DirectoryTokenItem(serializers.Serializer):
    id = serializers.CharField()
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField(allow_null=True)
    lastUsedAt = serializers.DateTimeField(allow_null=True)


class DirectoryItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    provider = serializers.CharField(help_text="empty: none")
    uidAttribute = serializers.CharField(help_text="empty: none")
    createdAt = serializers.DateTimeField()
    people = serializers.IntegerField()
    groups = serializers.IntegerField()
    tokens = DirectoryTokenItem(many=True)


class DirectoryTokenCreated(serializers.Serializer):
    id = serializers.CharField()
    token = serializers.CharField(help_text="shown this once")
    createdAt = serializers.DateTimeField()


class DirectoryCreated(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    path = serializers.CharField(help_text="of SCIM, on this platform")
    token = DirectoryTokenCreated()


class DirectoriesView(APIView):
    @operation("listDirectories", scope="identity:read", query=DirectoryQuery, page=DirectoryItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the directories that write people and groups over SCIM (administrator)."""
        rows = directories.list_directories(request.user)
        if words := query["search"]:
            rows = rows.filter(name__icontains=words)
        return paginate_rows(rows, query, serialize_directory)

    @operation("createDirectory", scope="identity:write", body=DirectoryRequest, data=DirectoryCreated, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Add a directory and return its first token, shown this once (administrator)."""
        row, token = directories.create_directory(request.user, **body)
        return {"id": row.pk, "name": row.name, "path": "/scim/v2", "token": token}


class DirectoryView(APIView):
    @operation("deleteDirectory", scope="identity:write")
    def delete(self, request: Request, directory_id: str) -> None:
        """Delete a directory with its groups and tokens; the roles that its groups gave end. The accounts of its people
        stay as they are (administrator)."""
        directories.delete_directory(request.user, directory_id)


class DirectoryTokensView(APIView):
    @operation("createDirectoryToken", scope="identity:write", data=DirectoryTokenCreated, status=201)
    def post(self, request: Request, directory_id: str) -> Data:
        """Add a token to a directory, shown this once; the others stay valid until they are revoked (administrator)."""
        return directories.create_token(request.user, directory_id)


class DirectoryTokenView(APIView):
    @operation("revokeDirectoryToken", scope="identity:write")
    def delete(self, request: Request, directory_id: str, token_id: str) -> None:
        """Revoke a token of a directory (administrator)."""
        directories.revoke_token(request.user, directory_id, token_id)


def serialize_directory(row: Directory) -> dict[str, Any]:
    counted: Any = row
    return {
        "id": row.pk,
        "name": row.name,
        "provider": row.provider,
        "uidAttribute": row.uid_attribute,
        "createdAt": row.created_at,
        "people": counted.people,
        "groups": counted.groups_,
        "tokens": [
            {
                "id": token.pk,
                "createdAt": token.created_at,
                "createdBy": token.created_by.username if token.created_by else None,
                "lastUsedAt": token.last_used_at,
            }
            for token in row.tokens.all()
        ],
    }

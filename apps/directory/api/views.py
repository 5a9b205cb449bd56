"""Endpoints of the rules that give roles by groups."""

from typing import Any

from django.db.models import Q

from apps.accounts import access
from apps.accounts.models import Project
from apps.accounts.selectors import TOKEN_ID_LENGTH
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.directory import services
from apps.directory.api import serializers as shapes
from apps.directory.counts import count_people
from apps.directory.models import RoleRule
from apps.directory.plans import NEW_PROJECT, Plan
from apps.directory.roles import RoleChange, get_rank

MAX_LISTED = 1_000
MAX_GROUPS_LISTED = 200


class RoleRulesView(APIView):
    @operation("listRoleRules", scope="identity:read", query=shapes.RoleRuleQuery, page=shapes.RoleRuleItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the rules that give roles by groups of an identity provider (administrator)."""
        access.require_administrator(request.user)
        rows = RoleRule.objects.select_related("project", "created_by", "updated_by").order_by("pattern", "pk")
        if words := query["search"]:
            rows = rows.filter(
                Q(pattern__icontains=words) | Q(provider__icontains=words) | Q(project__name__icontains=words)
            )
        answer = paginate_rows(rows, query)
        return {**answer, "items": serialize_rules(answer["items"])}

    @operation(
        "createRoleRule", scope="identity:write", body=shapes.RoleRuleSaveRequest, data=shapes.RoleRuleItem, status=201
    )
    def post(self, request: Request, body: Body) -> Data:
        """Add a rule and apply all rules to everybody whose groups are known (administrator). `fingerprint` is that of
        `previewRoleRules` for the same rule: nothing is saved that the preview has not shown."""
        return serialize_rules([services.create_rule(request.user, body, body.pop("fingerprint"))])[0]


class RoleRuleView(APIView):
    @operation("replaceRoleRule", scope="identity:write", body=shapes.RoleRuleSaveRequest, data=shapes.RoleRuleItem)
    def put(self, request: Request, rule_id: str, body: Body) -> Data:
        """Replace a rule and apply all rules (administrator). `fingerprint` is that of the preview."""
        return serialize_rules([services.change_rule(request.user, rule_id, body, body.pop("fingerprint"))])[0]

    @operation("deleteRoleRule", scope="identity:write", query=shapes.RoleRuleDeleteQuery)
    def delete(self, request: Request, rule_id: str, query: Query) -> None:
        """Delete a rule and apply those that are left (administrator). Roles that people gave stay. `fingerprint` is
        that of the preview."""
        services.delete_rule(request.user, rule_id, query["fingerprint"])


class RoleRulePreviewView(APIView):
    @operation(
        "previewRoleRules", scope="identity:read", body=shapes.RoleRulePreviewRequest, data=shapes.RoleRulePreview
    )
    def post(self, request: Request, body: Body) -> Data:
        """Return who would get and lose which roles, and which API tokens would end, if a rule were added (`rule`),
        replaced (both) or deleted (`ruleId`) (administrator). Changes nothing."""
        preview = services.preview_change(request.user, **body)
        shown = [{"name": name, "peopleCount": count} for name, count in preview.groups[:MAX_GROUPS_LISTED]]
        return {
            "fingerprint": preview.fingerprint,
            "groups": shown,
            "groupsTotal": len(preview.groups),
            **serialize_plan(preview.plan),
        }


def serialize_rules(rows: list[RoleRule]) -> list[dict[str, Any]]:
    counts = count_people(rows)
    return [_serialize_rule(row, counts[row.pk]) for row in rows]


def _serialize_rule(row: RoleRule, people: int) -> dict[str, Any]:
    return {
        "id": row.pk,
        "provider": row.provider,
        "claim": row.claim,
        "pattern": row.pattern,
        "projectId": row.project_id,
        "projectName": row.project.name if row.project else None,
        "createProject": row.create_project,
        "administrator": row.administrator,
        "role": row.role,
        "peopleCount": people,
        "createdAt": row.created_at,
        "createdBy": row.created_by.username if row.created_by else None,
        "updatedAt": row.updated_at,
        "updatedBy": row.updated_by.username if row.updated_by else None,
    }


def serialize_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan as the API answers it."""
    changes = [(row.user.username, key, change) for row in plan.people for key, change in row.projects.items()]
    shown = [one for one in changes if one[2].before != one[2].after]  # others change only who gave the role
    names = dict(Project.objects.filter(pk__in={key for _, key, _ in shown}).values_list("pk", "name"))
    tokens = [(row.user.username, token) for row in plan.people for token in row.tokens]
    return {
        "gaining": len({name for name, _, change in shown if _is_gain(change)}),
        "losing": len({name for name, _, change in shown if not _is_gain(change)}),
        "changes": [
            {
                "username": username,
                "projectId": None if key.startswith(NEW_PROJECT) else key,
                "projectName": names.get(key, key.removeprefix(NEW_PROJECT)),
                "before": change.before,
                "after": change.after,
            }
            for username, key, change in shown[:MAX_LISTED]
        ],
        "changesTotal": len(shown),
        "newAdministrators": [row.user.username for row in plan.people if row.administrator][:MAX_LISTED],
        "lostAdministrators": [row.user.username for row in plan.people if row.administrator is False][:MAX_LISTED],
        "lastAdministrator": next((row.user.username for row in plan.people if row.last_administrator), None),
        "tokens": [
            {"id": token.digest[:TOKEN_ID_LENGTH], "name": token.name, "username": username}
            for username, token in tokens[:MAX_LISTED]
        ],
        "tokensTotal": len(tokens),
        "knownTotal": plan.known,
        "unknownTotal": len(plan.unknown),
        "taken": plan.taken[:MAX_LISTED],
    }


def _is_gain(change: RoleChange) -> bool:
    if change.after is None or change.before is None:
        return change.after is not None
    return get_rank(change.after) > get_rank(change.before)

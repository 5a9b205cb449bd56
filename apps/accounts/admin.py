"""Operators' console: users, projects, tokens and the audit trail."""

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from apps.accounts import tokens as token_services
from apps.accounts.models import ApiToken, AuditEvent, Project, User
from apps.common.admin import SEARCH_HELP, ReadOnlyAdmin, label_app, label_model
from apps.common.texts import lazy_admin_text

label_model(User, "USERS")
label_model(Project, "PROJECTS", name="NAME", created_at="CREATED")
label_model(
    ApiToken,
    "API_TOKENS",
    name="TOKEN_NAME",
    user="USER",
    created="CREATED",
    expiry="EXPIRES",
)
label_model(
    AuditEvent,
    "AUDIT_TRAIL",
    at="TIME",
    actor="ACTOR",
    project="PROJECT",
    action="ACTION",
    target="TARGET",
    data="DATA",
    request_id="REQUEST_ID",
)

label_app("accounts", "ACCOUNTS")

ADMINISTRATOR_FIELDS = ("is_superuser", "is_staff", "groups", "user_permissions")


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    """Users. Only an administrator grants rights and changes another administrator's account."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    search_help_text = SEARCH_HELP

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        own = tuple(super().get_readonly_fields(request, obj))
        return own if request.user.is_superuser else (*own, *ADMINISTRATOR_FIELDS)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        guarded = isinstance(obj, User) and obj.is_superuser and not request.user.is_superuser
        return not guarded and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return False: accounts are deactivated, so that the audit trail keeps their names."""
        return False


admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    """Groups of Django's permissions. Only administrators see and change them."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.is_superuser

    has_add_permission = has_change_permission = has_delete_permission = has_view_permission


admin.site.unregister(UserSession)  # the console's page of people has them, and ends them
admin.site.unregister(Authenticator)


@admin.register(Authenticator)
class AuthenticatorAdmin(ReadOnlyAdmin):
    """Second factors, without `data`, the secret that codes are derived from. An administrator deletes one for a user
    who has lost it."""

    list_display = ("user", "type", "created_at", "last_used_at")
    list_filter = ("type", "created_at", "last_used_at")
    list_select_related = ("user",)
    fields = list_display

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.is_superuser


@admin.register(Project)
class ProjectAdmin(ReadOnlyAdmin):
    list_display = ("name", "id", "created_at")
    search_fields = ("name", "id")


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    list_display = ("name", "user", "created", "expiry")
    list_filter = ("created", "expiry")
    list_select_related = ("user",)
    search_fields = ("name", "user__username")
    fields = list_display
    actions = ("revoke",)

    @admin.action(description=lazy_admin_text("REVOKE"), permissions=["operate"])
    def revoke(self, request: HttpRequest, rows: QuerySet[ApiToken]) -> None:
        tokens = rows.select_related("user")
        self.apply(request, tokens, token_services.revoke_any_token, "REVOKED")


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor", "action", "target", "project", "request_id")
    list_filter = ("action", "project", "at")
    list_select_related = ("actor", "project")
    search_fields = ("target", "action", "actor__username", "request_id")
    ordering = ("-at",)

"""Users, projects, roles, secrets, API tokens and the audit trail."""

from functools import partial

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils.crypto import salted_hmac
from knox.models import AbstractAuthToken

from apps.accounts.scopes import TokenRights
from apps.common.ids import new_id


class User(AbstractUser):  # type: ignore[django-manager-missing]  # knox has no types
    """A person, or a service account: `service_project` is then the project that it belongs to. `is_superuser` is the
    platform's administrator and stands above every project role.

    `token_rights`: in a request that was authenticated by a token, what the token leaves of the user's rights. Not
    stored. Such an instance must not be saved: an administrator's narrow token has `is_superuser` False.
    `session_epoch`: sessions that began in an earlier one are over (`apps.accounts.revocation`).
    """

    token_rights: TokenRights | None = None

    service_project = models.ForeignKey(
        "Project", on_delete=models.SET_NULL, null=True, blank=True, related_name="service_accounts"
    )
    session_epoch = models.PositiveIntegerField(default=0, db_default=0, editable=False)

    def _get_session_auth_hash(self, secret: str | bytes | None = None) -> str:
        """Return what Django compares with the hash in a session. It depends on the password, and on the epoch."""
        hashed: str = super()._get_session_auth_hash(secret)  # type: ignore[misc]
        if not self.session_epoch:
            return hashed
        return salted_hmac("fermi.session-epoch", f"{hashed}:{self.session_epoch}", secret=secret).hexdigest()


class Project(models.Model):
    """Owner of environments, data and tasks. A user without a role in it does not learn that its contents exist.
    `warm`: default of its environments that do not set it themselves."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "project"))
    name = models.CharField(max_length=100, unique=True)
    warm = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="projects")

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """Role of a user in a project. Each includes the ones before it: a member submits and controls tasks, a maintainer
    also manages environments, data and members."""

    VIEWER = "viewer"
    MEMBER = "member"
    MAINTAINER = "maintainer"


class MembershipSource(models.TextChoices):
    """Where a role comes from: given by a person, or by a rule over the groups of an identity provider."""

    PERSON = "person"
    RULE = "rule"


class Membership(models.Model):
    GOES_WITH_PROJECT = True

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role, default=Role.MEMBER)
    source = models.CharField(
        max_length=20, choices=MembershipSource, default=MembershipSource.PERSON, db_default=MembershipSource.PERSON
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "user"], name="one_role_per_project")]


class Secret(models.Model):
    """A value that the project's tasks use by name and that is never shown. `value` is encrypted
    (`apps.accounts.encryption`)."""

    GOES_WITH_PROJECT = True

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=63)
    value = models.TextField()
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField()
    updated_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_secret_per_name")]


class ApiToken(AbstractAuthToken):
    """A named token that can be revoked. Only its hash is stored; the token itself is shown once, when it is
    created. `scopes`, `projects`, `tasks`: lists that narrow its rights (`apps.accounts.scopes`); None does not."""

    name = models.CharField(max_length=100, default="", blank=True)
    scopes = models.JSONField(null=True)
    projects = models.JSONField(null=True)
    tasks = models.JSONField(null=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    last_used_at = models.DateTimeField(null=True)
    last_used_from = models.CharField(max_length=64, default="", db_default="")

    class Meta(AbstractAuthToken.Meta):
        abstract = False


class SavedView(models.Model):
    """A user's settings of a list in a section of the console: `query` is the query string of the list's address."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "view"))
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    section = models.CharField(max_length=40)
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1000, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "section", "name"], name="one_saved_view_per_name")]


class SignInLink(models.Model):
    """A link that signs its user in once, within minutes. The embedded start opens the console by one."""

    digest = models.CharField(primary_key=True, max_length=64)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)


class AuditEvent(models.Model):
    """An action, who did it and in which request. `token`, `token_name`: the token that the request came with;
    `address`: where it came from. Rows are only added. `token_has_scopes`: whether that token is one of scopes, for
    receivers of the signal that the row is stored; not stored itself."""

    token_has_scopes = False

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    project = models.ForeignKey(Project, on_delete=models.SET_NULL, null=True)
    action = models.CharField(max_length=60)
    target = models.CharField(max_length=120)
    data = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, default="")
    token = models.CharField(max_length=16, default="", db_default="")
    token_name = models.CharField(max_length=100, default="", db_default="")
    address = models.CharField(max_length=64, default="", db_default="")

    class Meta:
        indexes = [
            models.Index(fields=["token", "action"], name="audit_token_action", condition=~models.Q(token="")),
            models.Index(fields=["action", "id"], name="audit_by_action"),
            models.Index(fields=["target", "id"], name="audit_by_target"),
        ]

"""Rules that give roles by groups, what has to be remembered about such roles, and directories, which write people and
groups themselves.

    SocialAccount's claims ─┐
                            ├─ RoleRule ── Membership(source=rule) | User.is_superuser with RuleAdministrator
    Group ── GroupMember ───┘
"""

from functools import partial

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower

from apps.accounts.models import Project, Role
from apps.common.ids import new_id
from apps.identity.models import MAX_ID_LENGTH

MAX_EXTERNAL_ID = 191  # as allauth's SocialAccount.uid


class RoleRule(models.Model):
    """Gives `role` in `project` to whoever has a value like `pattern` in the claim. Instead of `project`,
    `create_project` means a project of the group's name, and `administrator` the whole platform. `provider`: the id of
    an identity provider, or of a directory; empty: any identity provider. `pattern`: a whole value, or its beginning
    with `*` behind it."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "rule"))
    provider = models.CharField(max_length=MAX_ID_LENGTH, blank=True)
    claim = models.CharField(max_length=200)
    pattern = models.CharField(max_length=200)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, related_name="role_rules")
    create_project = models.BooleanField(default=False)
    administrator = models.BooleanField(default=False)
    role = models.CharField(max_length=20, choices=Role, blank=True)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField()
    updated_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")


class GroupProject(models.Model):
    """A project that rules made for a group. Rules give roles by a group's name in no other project."""

    GOES_WITH_PROJECT = True

    group = models.CharField(primary_key=True, max_length=100)
    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="group_project")


class KeptRole(models.Model):
    """The role that a person gave, while rules give a higher one in the same project."""

    GOES_WITH_PROJECT = True

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    role = models.CharField(max_length=20, choices=Role)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="one_kept_role_per_project")]


class RuleAdministrator(models.Model):
    """Marks an administrator whom a rule made one. Rules never take that from anybody else."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="+")


class UidAttribute(models.TextChoices):
    """Which of a person's attributes in a directory is what the identity provider knows them by."""

    NONE = ""
    EXTERNAL_ID = "externalId"
    USER_NAME = "userName"


class Directory(models.Model):
    """Something that writes people and groups over SCIM. `provider`: the identity provider that its people sign in by,
    empty for none. `uid_attribute`: the attribute that the provider knows them by; empty: they are not linked."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "directory"))
    name = models.CharField(max_length=100, unique=True)
    provider = models.CharField(max_length=MAX_ID_LENGTH, blank=True)
    uid_attribute = models.CharField(max_length=20, choices=UidAttribute, blank=True)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    def __str__(self) -> str:
        return self.name


class DirectoryToken(models.Model):
    """What a directory authenticates with. `digest`: SHA-256 of the token, which is shown once."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "dtoken"))
    directory = models.ForeignKey(Directory, on_delete=models.CASCADE, related_name="tokens")
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    last_used_at = models.DateTimeField(null=True)


class DirectoryUser(models.Model):
    """A person as a directory knows them. `user_name` is the directory's; the account keeps its own. `active`: what the
    directory said last; an administrator may have deactivated the account. `data`: the other attributes of
    `apps.directory.scim.resources.ScimUser`. `deleted_at`: the directory deleted the person; the row stays, so that the
    account becomes no other person's."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "person"))
    directory = models.ForeignKey(Directory, on_delete=models.CASCADE, related_name="users")
    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="directory_user")
    external_id = models.CharField(max_length=MAX_EXTERNAL_ID, blank=True)
    user_name = models.CharField(max_length=150)
    active = models.BooleanField(default=True)
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint("directory", Lower("user_name"), name="one_directory_user_per_name"),
            models.UniqueConstraint(
                fields=["directory", "external_id"],
                condition=~models.Q(external_id=""),
                name="one_directory_user_per_external_id",
            ),
        ]


class Group(models.Model):
    """A group of a directory."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "group"))
    directory = models.ForeignKey(Directory, on_delete=models.CASCADE, related_name="groups")
    external_id = models.CharField(max_length=MAX_EXTERNAL_ID, blank=True)
    display_name = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint("directory", Lower("display_name"), name="one_directory_group_per_name"),
            models.UniqueConstraint(
                fields=["directory", "external_id"],
                condition=~models.Q(external_id=""),
                name="one_directory_group_per_external_id",
            ),
        ]


class GroupMember(models.Model):
    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="memberships")
    person = models.ForeignKey(DirectoryUser, on_delete=models.CASCADE, related_name="memberships")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group", "person"], name="one_membership_per_group")]

"""Rules that give roles by the groups of an identity provider, and what has to be remembered about such roles.

SocialAccount's claims ── RoleRule ── Membership(source=rule) | User.is_superuser with RuleAdministrator
"""

from functools import partial

from django.conf import settings
from django.db import models

from apps.accounts.models import Project, Role
from apps.common.ids import new_id
from apps.identity.models import MAX_ID_LENGTH


class RoleRule(models.Model):
    """Gives `role` in `project` to whoever has a value like `pattern` in the claim. Instead of `project`,
    `create_project` means a project of the group's name, and `administrator` the whole platform. `provider`: the id of
    an identity provider; empty: any. `pattern`: a whole value, or its beginning with `*` behind it."""

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

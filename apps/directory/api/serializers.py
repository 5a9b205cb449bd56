"""Requests and answers about rules."""

from rest_framework import serializers

from apps.accounts.models import Role
from apps.common.pages import PageQuery
from apps.identity.models import MAX_ID_LENGTH

MAX_FINGERPRINT = 64


class RoleRuleQuery(PageQuery):
    pass


class RoleRuleRequest(serializers.Serializer):
    provider = serializers.CharField(
        max_length=MAX_ID_LENGTH, default="", allow_blank=True, help_text="id of an identity provider; empty: any"
    )
    claim = serializers.CharField(max_length=200, default="groups", help_text="groups, realm_access.roles, …")
    pattern = serializers.CharField(max_length=200, help_text="a group, or its beginning with * behind it")
    projectId = serializers.CharField(source="project_id", max_length=40, default=None, allow_null=True)
    createProject = serializers.BooleanField(
        source="create_project", default=False, help_text="in a project of the group's name, which the rule makes"
    )
    administrator = serializers.BooleanField(default=False, help_text="rights over the whole platform; has no role")
    role = serializers.ChoiceField(Role.choices, default="", allow_blank=True)


class RoleRuleSaveRequest(RoleRuleRequest):
    fingerprint = serializers.CharField(
        max_length=MAX_FINGERPRINT,
        help_text="of the preview of this change; 409 where saving would now do another thing",
    )


class RoleRuleDeleteQuery(serializers.Serializer):
    fingerprint = serializers.CharField(
        max_length=MAX_FINGERPRINT, help_text="of the preview of the deletion; 409 where it would now do another thing"
    )


class RoleRulePreviewRequest(serializers.Serializer):
    ruleId = serializers.CharField(
        source="rule_id", max_length=40, required=False, help_text="the rule that `rule` replaces, or to be deleted"
    )
    rule = RoleRuleRequest(source="values", required=False)


class RoleRuleItem(serializers.Serializer):
    id = serializers.CharField()
    provider = serializers.CharField()
    claim = serializers.CharField()
    pattern = serializers.CharField()
    projectId = serializers.CharField(allow_null=True)
    projectName = serializers.CharField(allow_null=True)
    createProject = serializers.BooleanField()
    administrator = serializers.BooleanField()
    role = serializers.CharField(help_text="empty for administrators")
    peopleCount = serializers.IntegerField(help_text="people whose last sign-in sent a group of the rule")
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField(allow_null=True)
    updatedAt = serializers.DateTimeField()
    updatedBy = serializers.CharField(allow_null=True)


class RoleRuleChange(serializers.Serializer):
    username = serializers.CharField()
    projectId = serializers.CharField(allow_null=True, help_text="null: the project is made")
    projectName = serializers.CharField()
    before = serializers.ChoiceField(Role.choices, allow_null=True)
    after = serializers.ChoiceField(Role.choices, allow_null=True)


class RoleRuleEndingToken(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    username = serializers.CharField()


class RoleRuleGroup(serializers.Serializer):
    name = serializers.CharField()
    peopleCount = serializers.IntegerField()


class RoleRulePreview(serializers.Serializer):
    fingerprint = serializers.CharField(help_text="for saving exactly this")
    gaining = serializers.IntegerField(help_text="people with a new or a higher role")
    losing = serializers.IntegerField(help_text="people with a role lost or lowered")
    changes = RoleRuleChange(many=True, help_text="the first 1 000")
    changesTotal = serializers.IntegerField()
    newAdministrators = serializers.ListField(child=serializers.CharField())
    lostAdministrators = serializers.ListField(child=serializers.CharField())
    lastAdministrator = serializers.CharField(
        allow_null=True, help_text="who stays administrator against the rules, because nobody else is one"
    )
    tokens = RoleRuleEndingToken(many=True, help_text="API tokens that end; the first 1 000")
    tokensTotal = serializers.IntegerField()
    knownTotal = serializers.IntegerField(help_text="people whose groups were read, as of their last sign-in")
    groups = RoleRuleGroup(many=True, help_text="groups in the rule's claim, those of most people first; the first 200")
    groupsTotal = serializers.IntegerField()
    unknownTotal = serializers.IntegerField(help_text="people whose groups are not known; they stay as they are")
    taken = serializers.ListField(
        child=serializers.CharField(), help_text="groups whose project cannot be made; the first 1 000"
    )

"""Endpoints for pre-flight tests."""

from rest_framework import serializers

from apps.clusters.api.serializers import LEVELS
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.openapi import KeyField, Reason
from apps.common.pages import OrderingField, PageQuery
from apps.training.preflight import presenters, services
from apps.training.states import STATES_BY_STATUS, TaskAction
from fermi import preflight
from fermi.planning import plugins

PREFLIGHT_STATUSES = [(status, status) for status in STATES_BY_STATUS]
JUDGED_LEVELS = [(level, level) for level in (*LEVELS, "unknown")]
STOP_ACTIONS = [(TaskAction.STOP.value, TaskAction.STOP.value)]
TEST_LEVELS = [(level, level) for level in preflight.LEVELS]


class PreflightCreateRequest(serializers.Serializer):
    environmentIds = serializers.ListField(
        source="environment_ids", child=serializers.CharField(max_length=100), max_length=1024
    )
    masterNode = KeyField(source="master", allow_null=True, default=None, help_text="the first environment by default")
    level = serializers.ChoiceField(TEST_LEVELS, default="quick")
    framework = serializers.CharField(
        max_length=40, default=plugins.DEFAULT_FRAMEWORK, help_text="what is to be trained with"
    )


class PreflightQuery(PageQuery):
    status = serializers.ChoiceField(PREFLIGHT_STATUSES, required=False)
    environment = KeyField(required=False, allow_blank=True, help_text="id")
    ordering = OrderingField("-createdAt", createdAt="run__created_at")


class PreflightEnvironment(serializers.Serializer):
    id = serializers.CharField(allow_null=True, help_text="null = the environment was removed")
    name = serializers.CharField()


class PreflightFinding(serializers.Serializer):
    check = serializers.CharField(help_text="what was looked at: variables, devices, gpuMemory, disk, name, tcp, …")
    level = serializers.ChoiceField(LEVELS)
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField(help_text="what to do")
    value = serializers.JSONField(allow_null=True, help_text="what was measured")


class PreflightNode(serializers.Serializer):
    environmentId = serializers.CharField()
    name = serializers.CharField()
    level = serializers.ChoiceField(JUDGED_LEVELS)
    findings = PreflightFinding(many=True)


class BetweenZonesQuery(serializers.Serializer):
    environments = serializers.ListField(
        child=serializers.CharField(max_length=100), max_length=4096, help_text="ids; may repeat"
    )


class ZoneLink(serializers.Serializer):
    locals()["from"] = serializers.CharField()
    to = serializers.CharField()
    rttMs = serializers.FloatField()
    bandwidthMbps = serializers.FloatField(allow_null=True, help_text="null: a quick test does not measure it")
    preflightId = serializers.CharField()
    at = serializers.DateTimeField()


class BetweenZones(serializers.Serializer):
    items = ZoneLink(many=True)


class PreflightPair(serializers.Serializer):
    """The measured link from one environment to another; `from` and `to` are environment ids."""

    locals()["from"] = serializers.CharField()  # no name that a class body could assign otherwise
    to = serializers.CharField()
    level = serializers.ChoiceField(JUDGED_LEVELS)
    rttMs = serializers.FloatField(allow_null=True)
    bandwidthMbps = serializers.FloatField(allow_null=True)
    interface = serializers.CharField(allow_null=True, help_text="by which the way leads: NCCL_SOCKET_IFNAME")
    findings = PreflightFinding(many=True)


class PreflightTogether(serializers.Serializer):
    level = serializers.ChoiceField(JUDGED_LEVELS)
    allReduceMs = serializers.FloatField(allow_null=True)
    barrierMs = serializers.FloatField(allow_null=True)
    findings = PreflightFinding(many=True)


class PreflightCulprit(serializers.Serializer):
    environmentIds = serializers.ListField(child=serializers.CharField())
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField(help_text="which node to drop, or what to change")


class PreflightVerdict(serializers.Serializer):
    level = serializers.ChoiceField(LEVELS)
    message = serializers.CharField()
    culprits = PreflightCulprit(many=True)


class PreflightBrief(serializers.Serializer):
    id = serializers.CharField()
    status = serializers.ChoiceField(PREFLIGHT_STATUSES, help_text="done: there is a verdict, of whatever level")
    reason = Reason(allow_null=True, help_text="why it waits, or why it failed")
    level = serializers.ChoiceField(TEST_LEVELS)
    taskId = serializers.CharField(allow_null=True, help_text="the training task whose first stage it is")
    projectId = serializers.CharField()
    owner = serializers.CharField()
    createdAt = serializers.DateTimeField()
    startedAt = serializers.DateTimeField(allow_null=True)
    endedAt = serializers.DateTimeField(allow_null=True)
    environments = PreflightEnvironment(many=True)
    verdict = PreflightVerdict(allow_null=True)


class PreflightDetail(PreflightBrief):
    allowedActions = serializers.ListField(
        child=serializers.ChoiceField(STOP_ACTIONS), help_text="what you may do with it now"
    )
    nodes = PreflightNode(many=True)
    pairs = PreflightPair(many=True)
    together = PreflightTogether(allow_null=True, help_text="null: a quick test, or it did not come to that")


class PreflightsView(APIView):
    @operation("listPreflights", scope="tasks:read", query=PreflightQuery, page=PreflightBrief)
    def get(self, request: Request, query: Query) -> Data:
        """List the pre-flight tests of your projects, newest first."""
        return paginate_rows(services.list_preflights(request.user, query), query, presenters.serialize_brief)

    @operation("createPreflight", scope="tasks:write", body=PreflightCreateRequest, data=PreflightDetail, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Start a test of whether these environments can train together, as soon as they are free."""
        return presenters.serialize_detail(services.create_preflight(request.user, **body))


class BetweenZonesView(APIView):
    @operation("listLinksBetweenZones", scope="tasks:read", query=BetweenZonesQuery, data=BetweenZones)
    def get(self, request: Request, query: Query) -> Data:
        """List what the newest tests measured between environments in different zones."""
        return {"items": services.list_zone_links(request.user, query["environments"])}


class PreflightView(APIView):
    @operation("getPreflight", scope="tasks:read", data=PreflightDetail)
    def get(self, request: Request, preflight_id: str) -> Data:
        """Return one pre-flight test: every node, every pair of nodes, and the verdict."""
        return presenters.serialize_detail(services.find_preflight(request.user, preflight_id))


class PreflightStopView(APIView):
    @operation("stopPreflight", scope="tasks:write", data=PreflightDetail)
    def post(self, request: Request, preflight_id: str) -> Data:
        """Stop a pre-flight test. Repeating the request changes nothing."""
        return presenters.serialize_detail(services.stop_preflight(request.user, preflight_id))

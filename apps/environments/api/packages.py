"""Endpoints of installed packages: comparing environments, and installing packages."""

from rest_framework import serializers

from apps.clusters import selectors
from apps.clusters.api.serializers import NotSelectableReason
from apps.common.api import APIView, Body, Data, Query, Request, operation
from apps.common.errors import ApiError, ProblemsError
from apps.common.openapi import KeyField
from apps.environments.models import InstallationState
from apps.environments.packages import installation, presenters, surveys
from apps.environments.packages.presenters import STATES
from fermi.jobs.spec import Problem
from fermi.planning.packages import KINDS, MAX_PACKAGES

MAX_ENVIRONMENTS = 64
PYTHON = "an interpreter's path, or a kernel's name; empty: what the environment's notebook runs"


class PackagesQuery(serializers.Serializer):
    ids = serializers.ListField(
        child=serializers.CharField(max_length=6_500), min_length=1, max_length=MAX_ENVIRONMENTS,
        help_text="of environments; may repeat, or be several with commas between them",
    )  # fmt: skip
    python = serializers.CharField(max_length=500, default="", allow_blank=True, help_text=PYTHON)
    anew = serializers.BooleanField(default=False, help_text="look again, however much is known")


class PackagesReason(NotSelectableReason):
    hint = serializers.CharField()


class PackagesEnvironment(serializers.Serializer):
    """Packages of one environment. `failed`: nothing is known, and `reason` says why."""

    environmentId = serializers.CharField()
    name = serializers.CharField()
    state = serializers.ChoiceField(STATES)
    looking = serializers.BooleanField(help_text="it is being looked at; what is told here is what was known before")
    lookedAt = serializers.DateTimeField(allow_null=True)
    python = serializers.CharField(help_text="path of the interpreter")
    version = serializers.CharField(help_text="of Python")
    torch = serializers.DictField(child=serializers.CharField(), help_text="version, cuda or hip, nccl: what is known")
    packageCount = serializers.IntegerField()
    reason = PackagesReason(allow_null=True)


class PackageDifference(serializers.Serializer):
    kind = serializers.ChoiceField(KINDS)
    name = serializers.CharField()
    fatal = serializers.BooleanField(help_text="training together fails by it")
    values = serializers.DictField(
        child=serializers.CharField(allow_blank=True), help_text="versions by environment; empty where it is missing"
    )


class PackageLacking(serializers.Serializer):
    name = serializers.CharField()
    version = serializers.CharField(help_text="of the first environment that has it")
    environmentIds = serializers.ListField(child=serializers.CharField(), help_text="that have not got it")
    requirement = serializers.CharField(help_text="what installs it; empty: no index has it, or it is left alone")


class PackageMissing(serializers.Serializer):
    module = serializers.CharField()
    place = serializers.CharField(help_text="where the task's code imports it: train.py:3")
    environmentIds = serializers.ListField(child=serializers.CharField(), help_text="that have not got it")
    requirement = serializers.CharField(help_text="what installs it; empty: not known")
    anywhere = serializers.BooleanField(help_text="one of the environments has it")


class PackagesCompared(serializers.Serializer):
    environments = PackagesEnvironment(many=True)
    looking = serializers.BooleanField(help_text="some are being looked at: ask again in a second")
    differences = PackageDifference(many=True)
    lacking = PackageLacking(many=True)


class PackagesOfTask(serializers.Serializer):
    """Packages of the environments in which a task's ranks would run."""

    python = serializers.CharField(help_text="the interpreter that the task names; empty: what their notebooks run")
    environments = PackagesEnvironment(many=True)
    looking = serializers.BooleanField(help_text="some are being looked at: ask again in a second")
    differences = PackageDifference(many=True, help_text="that the task may notice")
    missing = PackageMissing(many=True)
    level = serializers.ListField(child=serializers.CharField(), help_text="requirements that level them")


class PackagesLevelRequest(serializers.Serializer):
    ids = serializers.ListField(
        child=KeyField(), min_length=1, max_length=MAX_ENVIRONMENTS, help_text="of environments"
    )
    packages = serializers.ListField(
        child=serializers.CharField(max_length=200), min_length=1, max_length=MAX_PACKAGES,
        help_text="names with versions, as pip reads them: einops==0.8.0",
    )  # fmt: skip
    python = serializers.CharField(max_length=500, required=False, allow_blank=True, default="", help_text=PYTHON)


class PackageInstallation(serializers.Serializer):
    environmentId = serializers.CharField()
    name = serializers.CharField()
    state = serializers.ChoiceField(InstallationState.choices)
    exit = serializers.IntegerField(allow_null=True, help_text="pip's exit code")
    output = serializers.CharField(help_text="what pip printed; of much, the end")
    reason = PackagesReason(allow_null=True, help_text="why it could not be run")
    endedAt = serializers.DateTimeField(allow_null=True)


class PackageInstallations(serializers.Serializer):
    id = serializers.CharField()
    packages = serializers.ListField(child=serializers.CharField())
    askedBy = serializers.CharField()
    createdAt = serializers.DateTimeField()
    over = serializers.BooleanField()
    items = PackageInstallation(many=True)


class PackagesView(APIView):
    @operation("compareEnvironmentPackages", scope="environments:read", query=PackagesQuery, data=PackagesCompared)
    def get(self, request: Request, query: Query) -> Data:
        """Return where environments differ in Python, torch, CUDA, NCCL and packages. Returns at once what is known;
        `looking` is true while environments are being asked for the rest."""
        ids = [key for text in query["ids"] for key in text.split(",") if key]
        if len(ids) > MAX_ENVIRONMENTS:
            raise ProblemsError([Problem("ids", "ITEMS_AT_MOST", {"high": MAX_ENVIRONMENTS})])
        environments, problems = selectors.select_environments(request.user, ids, "ids")
        if problems:
            raise ProblemsError(problems)
        seen = surveys.request_surveys(request.user, environments, query["python"], refresh=query["anew"])
        return presenters.serialize_comparison(seen)


class PackagesLevelView(APIView):
    @operation(
        "levelEnvironmentPackages",
        scope="environments:write",
        body=PackagesLevelRequest,
        data=PackageInstallations,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Start installing packages in each of the environments (member). Poll the result until it is `over`."""
        together = installation.start_installations(request.user, body["ids"], body["packages"], body["python"])
        return presenters.serialize_installations(installation.list_installations(request.user, together))


class PackagesInstallationView(APIView):
    @operation("getEnvironmentInstallation", scope="environments:read", data=PackageInstallations)
    def get(self, request: Request, installation_id: str) -> Data:
        """Return the progress of the installations of one request, with pip's output. It is kept for a week."""
        if len(installation_id) > 40:
            raise ApiError(404, "NOT_FOUND")
        return presenters.serialize_installations(installation.list_installations(request.user, installation_id))

"""Endpoints for what runs ran with, and for what differs between two of them."""

from rest_framework import serializers

from apps.code.api.serializers import FileDifference
from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.openapi import MAX_INT4, KeyField
from apps.runs import differences, run_facts
from apps.training.public import TaskState, find_task
from fermi.runs.differences import KINDS
from fermi.runs.divergence import Basis, Verdict

KIND_CHOICES = [(kind, kind) for kind in KINDS]
VERDICT_CHOICES = [(one.value, one.value) for one in Verdict]
BASIS_CHOICES = [(one.value, one.value) for one in Basis]


class RunDifferencesQuery(serializers.Serializer):
    left = KeyField(help_text="id of a task")
    right = KeyField(help_text="id of the task that it is compared with")


class DifferingRun(serializers.Serializer):
    taskId = serializers.CharField()
    taskName = serializers.CharField()
    status = serializers.ChoiceField([(state.value, state.value) for state in TaskState])
    createdAt = serializers.DateTimeField()


class ComparisonText(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField(help_text="why it matters, or what to do; may be empty")


class RunDifference(ComparisonText):
    kind = serializers.ChoiceField(KIND_CHOICES)
    name = serializers.CharField(help_text="of the parameter, package or variable; empty where there is one alone")
    left = serializers.CharField(help_text="empty: the run has none, or it is never shown (variables)")
    right = serializers.CharField()
    weight = serializers.IntegerField(help_text="0 to 100: an order, no probability")


class CurveDivergence(ComparisonText):
    metric = serializers.CharField()
    verdict = serializers.ChoiceField(VERDICT_CHOICES, help_text="too_few: nothing is claimed")
    basis = serializers.ChoiceField(BASIS_CHOICES, help_text="own: the short-range noise of the curves themselves")
    sisters = serializers.IntegerField(help_text="runs that differ in the seed alone, from which the noise is known")
    points = serializers.IntegerField(help_text="in the range of steps that both have, of the curve with fewer")
    step = serializers.IntegerField(allow_null=True, help_text="at which they part; null: they do not")
    left = serializers.FloatField(allow_null=True, help_text="average shortly behind that step")
    right = serializers.FloatField(allow_null=True)
    margin = serializers.FloatField(allow_null=True, help_text="what they had to differ by")
    identicalUntil = serializers.IntegerField(allow_null=True, help_text="the step up to which all values are the same")


class RunDifferences(serializers.Serializer):
    left = DifferingRun()
    right = DifferingRun()
    differences = RunDifference(many=True, help_text="the likeliest cause of another result first")
    leftOut = serializers.IntegerField(help_text="further differences")
    curves = CurveDivergence(many=True, help_text="losses and scores that both runs have")
    files = FileDifference(many=True, help_text="of the code snapshots, those that differ")
    filesLeftOut = serializers.IntegerField()
    gaps = ComparisonText(many=True, help_text="what could not be compared")


class RunFactsQuery(serializers.Serializer):
    attempt = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_INT4, help_text="by default the newest that reported any"
    )


class GpuCount(serializers.Serializer):
    type = serializers.CharField()
    count = serializers.IntegerField()


class ScriptFact(serializers.Serializer):
    path = serializers.CharField()
    sha256 = serializers.CharField()


class VariableFact(serializers.Serializer):
    name = serializers.CharField()
    isSecret = serializers.BooleanField(help_text="its value may be a secret, so it is never compared")


class PackageFact(serializers.Serializer):
    name = serializers.CharField()
    version = serializers.CharField()


class PackageSetItem(serializers.Serializer):
    id = serializers.CharField()
    packages = PackageFact(many=True)


class NodeFactsItem(serializers.Serializer):
    """What a node reported; a text that it did not report is empty."""

    nodeRank = serializers.IntegerField()
    name = serializers.CharField()
    python = serializers.CharField()
    executable = serializers.CharField(help_text="the interpreter of its ranks")
    cuda = serializers.CharField(help_text="that PyTorch was built for")
    rocm = serializers.CharField()
    driver = serializers.CharField()
    kernel = serializers.CharField()
    cpu = serializers.CharField()
    cores = serializers.IntegerField(allow_null=True)
    gpus = GpuCount(many=True, help_text="of the machine")
    script = ScriptFact(allow_null=True, help_text="of a task without a code snapshot")
    commit = serializers.CharField(help_text="of the script's folder")
    branch = serializers.CharField()
    packageSetId = serializers.CharField(allow_null=True)
    variables = VariableFact(many=True)


class RunFactsAnswer(serializers.Serializer):
    taskId = serializers.CharField()
    attempt = serializers.IntegerField(allow_null=True, help_text="null: none has reported any")
    nodes = NodeFactsItem(many=True)
    packageSets = PackageSetItem(many=True, help_text="each once, however many nodes have it")


class RunDifferencesView(APIView):
    @operation("getRunDifferences", scope="runs:read", query=RunDifferencesQuery, data=RunDifferences)
    def get(self, request: Request, query: Query) -> Data:
        """Return what differs between two tasks, the likeliest cause of another result first, and the step at which
        their curves part beyond the noise."""
        return differences.compare_runs(request.user, query["left"], query["right"])


class RunFactsView(APIView):
    @operation("getRunFacts", scope="runs:read", query=RunFactsQuery, data=RunFactsAnswer)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Return what the nodes of an attempt reported that they ran with: interpreter, packages, machine, and the
        names of variables."""
        return run_facts.serialize_facts(find_task(request.user, task_id), query.get("attempt"))

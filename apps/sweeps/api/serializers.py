"""What comes in and goes out of the endpoints of sweeps; the body of a sweep is `fermi.sweeps.spec.SweepRequest`."""

from rest_framework import serializers

from apps.common.openapi import KeyField, ProblemItem, Reason
from apps.common.pages import OrderingField, PageQuery
from fermi.sweeps.decision import SweepState, TrialState

STATES = [(state.value, state.value) for state in SweepState]
TRIAL_STATES = [(state.value, state.value) for state in TrialState]
METHODS = [(name, name) for name in ("tpe", "random", "grid", "cmaes")]
GOALS = [(name, name) for name in ("minimize", "maximize")]
MAX_FILE_LENGTH = 65_536
ACTIONS = [(name, name) for name in ("pause", "resume", "stop", "delete", "cloneBest")]


class SweepQuery(PageQuery):
    status = serializers.ListField(child=serializers.ChoiceField(STATES), max_length=10, required=False)
    project = KeyField(required=False, allow_blank=True, help_text="id")
    ordering = OrderingField("-createdAt", createdAt="created_at", name="name")


class TrialQuery(PageQuery):
    status = serializers.ListField(child=serializers.ChoiceField(TRIAL_STATES), max_length=10, required=False)
    ordering = OrderingField("number", number="number", value="value", createdAt="created_at")


class CloneBestRequest(serializers.Serializer):
    taskName = serializers.CharField(source="name", max_length=100, required=False)
    hyperparameters = serializers.DictField(required=False, help_text="in place of those of the trial")
    args = serializers.ListField(
        child=serializers.CharField(max_length=4000, trim_whitespace=False),
        max_length=1000,
        required=False,
        help_text="behind the script's other arguments",
    )
    resume = serializers.BooleanField(default=True, help_text="from the trial's newest checkpoint")


class SweepFileRequest(serializers.Serializer):
    text = serializers.CharField(
        max_length=MAX_FILE_LENGTH,
        trim_whitespace=False,
        help_text="YAML or JSON: a sweep of ours, a sweep file of Weights & Biases, or an Experiment of Katib",
    )


class SweepFileMeaning(serializers.Serializer):
    sweep = serializers.DictField(help_text="a body for POST /sweeps; its request may be incomplete")
    problems = ProblemItem(many=True, help_text="what of the file has no equal here")


class SweepTrialCounts(serializers.Serializer):
    total = serializers.IntegerField()
    running = serializers.IntegerField(help_text="with those that wait")
    paused = serializers.IntegerField(help_text="at a rung")
    complete = serializers.IntegerField()
    pruned = serializers.IntegerField()
    failed = serializers.IntegerField()
    stopped = serializers.IntegerField(help_text="with the sweep, or by a user")


class SweepItem(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    projectId = serializers.CharField()
    projectName = serializers.CharField()
    owner = serializers.CharField()
    status = serializers.ChoiceField(STATES)
    reason = Reason(allow_null=True)
    method = serializers.ChoiceField(METHODS)
    metric = serializers.CharField()
    goal = serializers.ChoiceField(GOALS)
    trials = SweepTrialCounts()
    best = serializers.IntegerField(allow_null=True, help_text="number of the best trial")
    bestValue = serializers.FloatField(allow_null=True)
    gpuHours = serializers.FloatField(help_text="of ended trials, and with a budget of the running ones, too")
    cost = serializers.FloatField(allow_null=True, help_text="null without a price")
    createdAt = serializers.DateTimeField()
    endedAt = serializers.DateTimeField(allow_null=True)
    allowedActions = serializers.ListField(child=serializers.ChoiceField(ACTIONS))


class TrialMark(serializers.Serializer):
    step = serializers.IntegerField()
    value = serializers.FloatField(help_text="the objective as it was at this step")


class SweepTrial(serializers.Serializer):
    number = serializers.IntegerField()
    status = serializers.ChoiceField(TRIAL_STATES)
    taskId = serializers.CharField(allow_null=True, help_text="null: not made yet, or deleted")
    taskStatus = serializers.CharField(allow_null=True)
    parameters = serializers.DictField()
    chosenBy = serializers.ChoiceField(METHODS)
    value = serializers.FloatField(allow_null=True, help_text="the objective, as far as it is known")
    valueStep = serializers.IntegerField(allow_null=True)
    step = serializers.IntegerField(allow_null=True, help_text="the newest")
    rung = serializers.IntegerField(help_text="how many comparisons it has passed")
    marks = TrialMark(many=True)
    why = Reason(allow_null=True, help_text="why it waits, was paused, or ended as it did")
    gpuHours = serializers.FloatField()
    cost = serializers.FloatField(allow_null=True)
    createdAt = serializers.DateTimeField()
    startedAt = serializers.DateTimeField(allow_null=True)
    endedAt = serializers.DateTimeField(allow_null=True)


class SweepWarning(Reason):
    field = serializers.CharField()


class Sweep(SweepItem):
    spec = serializers.DictField(help_text="what it was created from")
    bestTrial = SweepTrial(allow_null=True)
    warnings = SweepWarning(many=True, help_text="signs that the script does not read its parameters")


class SweepPreview(serializers.Serializer):
    problems = ProblemItem(many=True)
    warnings = SweepWarning(many=True)
    count = serializers.IntegerField(
        allow_null=True, help_text="trials at most; null: other parts of the budget end it"
    )
    parameters = serializers.ListField(child=serializers.DictField(), help_text="of the first trials")
    commands = serializers.ListField(
        child=serializers.CharField(), help_text="how the first trials start an own script; empty without one"
    )
    request = serializers.DictField(allow_null=True, help_text="of the first trial's task; null: none can be built")


class ParameterImportance(serializers.Serializer):
    name = serializers.CharField()
    share = serializers.FloatField(help_text="of the differences between trials; all together are 1")


class SweepImportance(serializers.Serializer):
    trials = serializers.IntegerField(help_text="completed ones, from which it was computed")
    items = ParameterImportance(many=True)


class ClonedTask(serializers.Serializer):
    taskId = serializers.CharField()

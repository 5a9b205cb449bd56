"""Endpoint for the progress of a task's ranks."""

from rest_framework import serializers

from apps.common.api import APIView, Data, Request, operation
from apps.training.presenters import rank_progress
from apps.training.services import actions
from fermi.jobs.spec import PHASES


class RankPulse(serializers.Serializer):
    """Progress of one rank. Times are by the clock of the rank's node."""

    rank = serializers.IntegerField()
    at = serializers.DateTimeField(help_text="when its node runner looked")
    phase = serializers.ChoiceField([(phase, phase) for phase in PHASES])
    step = serializers.IntegerField(allow_null=True, help_text="optimizer steps of this attempt; null: not to be seen")
    steppedAt = serializers.DateTimeField(allow_null=True, help_text="when the last one ended")
    sinceStep = serializers.FloatField(allow_null=True, help_text="seconds since then")
    stepSeconds = serializers.FloatField(allow_null=True, help_text="from step to step, lately")
    waitingShare = serializers.FloatField(allow_null=True, help_text="of its time lately in collectives, 0 to 1")
    printedAt = serializers.DateTimeField(allow_null=True)
    gpuBytes = serializers.IntegerField(allow_null=True, help_text="the most that was allocated on its GPU")
    rssBytes = serializers.IntegerField(allow_null=True, help_text="the most of the host's memory that it had")
    cpu = serializers.FloatField(allow_null=True, help_text="processors in use")


class TaskPulses(serializers.Serializer):
    taskId = serializers.CharField()
    attempt = serializers.IntegerField()
    ranks = RankPulse(many=True, help_text="those that have a pulse; none of a task that does not run")


class TaskPulsesView(APIView):
    @operation("getTaskPulses", scope="tasks:read", data=TaskPulses)
    def get(self, request: Request, task_id: str) -> Data:
        """Return the current progress of the ranks: step, time of the last step, share of time in collectives, memory.
        Cheap enough to be polled every two seconds."""
        return rank_progress.serialize_progress(actions.find_task(request.user, task_id))

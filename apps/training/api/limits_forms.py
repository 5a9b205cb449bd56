"""Serializers of what a project and its members may use, and of what they use."""

from typing import Any

from rest_framework import serializers

from apps.common.openapi import INT4, INT8, Key
from apps.common.pages import OrderingField, PageQuery
from apps.scheduling.models import AtBudget
from apps.training.api.schemas import CLASSES

MOST_HOURS, MOST_MONEY = 1e9, 1e11


def _count(source: str, said: str = "", *, low: int = 0) -> serializers.IntegerField:
    limits: dict[str, Any] = {"min_value": low, "max_value": INT4, "allow_null": True, "default": None}
    return serializers.IntegerField(source=source, help_text=said, **limits)


def _amount(source: str | None, most: float, said: str) -> serializers.FloatField:
    return serializers.FloatField(
        source=source, min_value=0, max_value=most, allow_null=True, default=None, help_text=said
    )


class LimitsRequest(serializers.Serializer):
    """Replaces all of them: null, an empty list or what is left out = no limit."""

    weight = serializers.IntegerField(min_value=1, max_value=10_000, default=1, help_text="of its fair share")
    guaranteedGpus = _count("guaranteed_gpus", "shared GPUs that it gets back by preemption; beyond them it borrows")
    mostGpus = _count("most_gpus", "that its tasks hold at once")
    mostTasks = _count("most_tasks", "that hold environments at once")
    gpuHours = _amount("gpu_hours", MOST_HOURS, "in a month (UTC)")
    gpuTypes = serializers.ListField(source="gpu_types", child=Key(max_length=40), max_length=100, default=list)
    zones = serializers.ListField(child=Key(), max_length=100, default=list, help_text="ids or names")
    priorities = serializers.ListField(
        child=serializers.ChoiceField(CLASSES),
        max_length=4,
        default=list,
        help_text="that members may use; empty = low, normal and high",
    )
    longestRunSeconds = _count("longest_run_seconds", "that maxRunSeconds may be; then it has to be given", low=1)
    userMostGpus = _count("user_most_gpus", "of each member that has no limits of their own")
    userMostTasks = _count("user_most_tasks")
    userGpuHours = _amount("user_gpu_hours", MOST_HOURS, "in a month (UTC)")
    maxEnvironments = _count("max_environments", "that the platform makes for it; stopped ones count")
    maxEnvironmentGpus = _count("max_environment_gpus", "that those have which run")
    userMaxEnvironments = _count("user_max_environments", "of each member that has no limits of their own")
    userMaxEnvironmentGpus = _count("user_max_environment_gpus")
    budget = _amount(None, MOST_MONEY, "of a month (UTC), in the platform's currency")
    atBudget = serializers.ChoiceField(
        AtBudget.choices,
        source="at_budget",
        default=AtBudget.WARN,
        help_text="what happens to new tasks once it is spent",
    )
    maxFileBytes = serializers.IntegerField(
        source="max_file_bytes", min_value=0, max_value=INT8, allow_null=True, default=None,
        help_text="that its files, and what its tasks write, may take together",
    )  # fmt: skip


class LimitsUse(serializers.Serializer):
    gpus = serializers.IntegerField(help_text="that tasks hold now")
    sharedGpus = serializers.IntegerField(help_text="of these, on shared environments: what the guarantee counts")
    tasks = serializers.IntegerField(help_text="that hold environments now")
    gpuHours = serializers.FloatField(help_text="of this month (UTC) so far")
    cost = serializers.FloatField(help_text="of this month (UTC) so far")
    environments = serializers.IntegerField(help_text="that the platform made and that are there now")
    environmentGpus = serializers.IntegerField(help_text="of those of them that run")
    share = serializers.FloatField(help_text="GPU-seconds used, half of which are forgotten in seven days")


class Limits(serializers.Serializer):
    """Null or an empty list = no limit."""

    projectId = serializers.CharField()
    weight = serializers.IntegerField()
    guaranteedGpus = serializers.IntegerField(allow_null=True)
    mostGpus = serializers.IntegerField(allow_null=True)
    mostTasks = serializers.IntegerField(allow_null=True)
    gpuHours = serializers.FloatField(allow_null=True)
    gpuTypes = serializers.ListField(child=serializers.CharField())
    zones = serializers.ListField(child=serializers.CharField(), help_text="ids")
    priorities = serializers.ListField(child=serializers.ChoiceField(CLASSES))
    longestRunSeconds = serializers.IntegerField(allow_null=True)
    userMostGpus = serializers.IntegerField(allow_null=True)
    userMostTasks = serializers.IntegerField(allow_null=True)
    userGpuHours = serializers.FloatField(allow_null=True)
    maxEnvironments = serializers.IntegerField(allow_null=True)
    maxEnvironmentGpus = serializers.IntegerField(allow_null=True)
    userMaxEnvironments = serializers.IntegerField(allow_null=True)
    userMaxEnvironmentGpus = serializers.IntegerField(allow_null=True)
    budget = serializers.FloatField(allow_null=True)
    atBudget = serializers.ChoiceField(AtBudget.choices)
    maxFileBytes = serializers.IntegerField(allow_null=True)
    currency = serializers.CharField()
    updatedAt = serializers.DateTimeField(allow_null=True)
    updatedBy = serializers.CharField(help_text="empty: nobody yet")
    mayChange = serializers.BooleanField()
    use = LimitsUse()


class UserLimitsQuery(PageQuery):
    ordering = OrderingField("username", username="user__username")


class UserLimitsRequest(serializers.Serializer):
    """In place of what the project's limits say of each member; null or what is left out = no limit."""

    mostGpus = _count("most_gpus", "that their tasks hold at once")
    mostTasks = _count("most_tasks", "that hold environments at once")
    gpuHours = _amount("gpu_hours", MOST_HOURS, "in a month (UTC)")
    maxEnvironments = _count("max_environments", "that the platform makes for them; stopped ones count")
    maxEnvironmentGpus = _count("max_environment_gpus", "that those have which run")


class UserUse(serializers.Serializer):
    gpus = serializers.IntegerField()
    tasks = serializers.IntegerField()
    gpuHours = serializers.FloatField()
    environments = serializers.IntegerField()
    environmentGpus = serializers.IntegerField()


class UserLimits(serializers.Serializer):
    username = serializers.CharField()
    mostGpus = serializers.IntegerField(allow_null=True)
    mostTasks = serializers.IntegerField(allow_null=True)
    gpuHours = serializers.FloatField(allow_null=True)
    maxEnvironments = serializers.IntegerField(allow_null=True)
    maxEnvironmentGpus = serializers.IntegerField(allow_null=True)
    own = serializers.BooleanField(help_text="false: what the project's limits say of each member")
    use = UserUse()

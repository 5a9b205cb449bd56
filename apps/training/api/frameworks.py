"""Endpoint that lists the frameworks, and the JSON of recommendations."""

from typing import Any

from rest_framework import serializers

from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.pages import ShortQuery, paginate_items
from apps.common.texts import render_text
from apps.training.presenters import task_presenter
from apps.training.services import frameworks
from apps.training.services.recommend import FrameworkAdvice
from fermi.jobs import recipes
from fermi.jobs.spec import JobSpec
from fermi.planning import plugins, scenarios
from fermi.planning.recommend import Recommendation


class FrameworkCluster(serializers.Serializer):
    clusterId = serializers.CharField()
    available = serializers.BooleanField(allow_null=True, help_text="null: its interpreter cannot be asked")
    lacks = serializers.ListField(child=serializers.CharField(), help_text="what is not installed there")
    message = serializers.CharField()
    hint = serializers.CharField(help_text="how it is installed")


class ModelSize(serializers.Serializer):
    min = serializers.IntegerField()
    max = serializers.IntegerField(allow_null=True)


class FrameworkItem(serializers.Serializer):
    value = serializers.CharField()
    aliases = serializers.ListField(child=serializers.CharField())
    label = serializers.CharField()  # type: ignore[assignment]
    description = serializers.CharField()
    parallelism = serializers.ListField(child=serializers.CharField())
    modelSize = ModelSize(help_text="number of parameters it suits")
    options = serializers.DictField(help_text="JSON Schema of distributedConfig.options")
    available = serializers.BooleanField(help_text="false: none of the clusters that you may use can run it")
    clusters = FrameworkCluster(many=True, help_text="of the environments that you may use")


class FrameworksView(APIView):
    @operation("listFrameworks", scope="any", query=ShortQuery, page=FrameworkItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the frameworks with the options that each takes, and where each is installed."""
        return paginate_items(frameworks.list_frameworks(request.user), query)


def serialize_advice(advice: FrameworkAdvice) -> dict[str, Any]:
    """Return the recommendation as the API answers it."""
    return {
        "modelParameters": recipes.count_model_parameters(advice.job),
        "items": [
            {**_serialize_recommendation(one), "strategy": one.strategy, "options": one.options}
            for one in advice.suitable
        ],
        "rejected": [_serialize_recommendation(one) for one in advice.rejected],
        "scenes": _list_scenarios(advice.job),
    }


def _list_scenarios(job: JobSpec) -> list[dict[str, Any]]:
    """Return the whole table of scenarios; the last one that fits suits these nodes best."""
    fits = scenarios.list_fitting_scenarios(len(job.nodes), sum(max(node.gpu_count, 1) for node in job.nodes))
    return [
        {
            "code": scene.code,
            "name": render_text(scene.code)[0],
            "feature": render_text(scene.code)[1],
            "nodes": {"min": scene.nodes[0], "max": scene.nodes[1]},
            "gpus": {"min": scene.gpus[0], "max": scene.gpus[1]},
            "frameworks": [{"framework": name, "label": _get_label(name)} for name in scene.frameworks],
            "fits": scene in fits,
        }
        for scene in scenarios.SCENARIOS
    ]


def _get_label(framework: str) -> str:
    return (
        render_text("SINGLE_MACHINE")[0]
        if framework == scenarios.SINGLE
        else plugins.get_framework(framework).info.label
    )


def _serialize_recommendation(recommendation: Recommendation) -> dict[str, Any]:
    return {
        "framework": recommendation.framework,
        "label": plugins.get_framework(recommendation.framework).info.label,
        "reasons": [task_presenter.serialize_warning(reason.code, reason.params) for reason in recommendation.reasons],
    }

"""Endpoint that says what a pasted launch command means."""

from typing import Any

from rest_framework import serializers

from apps.clusters.api.serializers import WarningItem
from apps.common.api import APIView, Body, Data, Request, operation
from apps.common.errors import ApiError
from apps.training.presenters import task_presenter
from fermi.planning.launch_commands import LaunchCommand, ProposedEntrypoint, recognize_command
from fermi.planning.shell_text import MAX_TEXT_BYTES, ShellTextError


class LaunchCommandRequest(serializers.Serializer):
    text = serializers.CharField(
        max_length=MAX_TEXT_BYTES,
        allow_blank=True,
        trim_whitespace=False,
        help_text="as people have it in a README or their history: several lines, variables, prompts",
    )


class LaunchEntrypoint(serializers.Serializer):
    script = serializers.CharField(required=False)
    module = serializers.CharField(required=False)
    command = serializers.ListField(child=serializers.CharField(), required=False)
    args = serializers.ListField(child=serializers.CharField(), required=False)
    processes = serializers.ChoiceField(["gpu", "node"])


class LaunchCommandMeaning(serializers.Serializer):
    entrypoint = LaunchEntrypoint(help_text="the request's entrypoint")
    asIs = LaunchEntrypoint(help_text="the command itself, once on each node")
    env = serializers.DictField(child=serializers.CharField(), help_text="the request's env")
    launcher = serializers.CharField(help_text="what starts the ranks in it; empty: nothing does")
    framework = serializers.CharField(help_text="a name of /frameworks; empty: it asks for none")
    gpusPerNode = serializers.IntegerField(allow_null=True, help_text="null: it names no number")
    nodes = serializers.IntegerField(allow_null=True, help_text="null: it names no number")
    maxRestarts = serializers.IntegerField(allow_null=True, help_text="null: it names no number")
    notes = WarningItem(many=True, help_text="what was left out or replaced, and why")
    unclear = WarningItem(many=True, help_text="why it runs as it is; empty: it was understood")


class LaunchCommandView(APIView):
    @operation("readLaunchCommand", scope="any", body=LaunchCommandRequest, data=LaunchCommandMeaning)
    def post(self, request: Request, body: Body) -> Data:
        """Return what a pasted launch command (torchrun, accelerate launch, deepspeed, …) means as a task. Runs
        nothing. 400 for a text that is no command."""
        try:
            return _serialize_command(recognize_command(body["text"]))
        except ShellTextError as refused:
            raise ApiError(400, refused.code, "text", **refused.params) from refused


def _serialize_command(found: LaunchCommand) -> dict[str, Any]:
    return {
        "entrypoint": _serialize_entrypoint(found.entrypoint),
        "asIs": _serialize_entrypoint(found.as_is),
        "env": found.env,
        "launcher": found.launcher,
        "framework": found.framework,
        "gpusPerNode": found.gpus_per_node,
        "nodes": found.nodes,
        "maxRestarts": found.max_restarts,
        "notes": [task_presenter.serialize_warning(one.code, one.params) for one in found.notes],
        "unclear": [task_presenter.serialize_warning(one.code, one.params) for one in found.unclear],
    }


def _serialize_entrypoint(entrypoint: ProposedEntrypoint) -> dict[str, Any]:
    return {"processes": "gpu", **entrypoint.to_request()}

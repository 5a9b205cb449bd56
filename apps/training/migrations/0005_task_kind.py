"""Tasks have a kind, and what is done later is done by `spec` alone: what older rows say of it elsewhere moves there."""

from typing import Any

from django.db import migrations, models

import apps.training.states

FINAL = ("succeeded", "failed", "stopped")


def forwards(apps: Any, _: Any) -> None:
    task = apps.get_model("training", "Task")
    task.objects.filter(framework="preflight").update(kind="preflight")
    for row in task.objects.exclude(state__in=FINAL).only("spec", "request", "max_restarts").iterator():
        row.spec |= {
            "max_restarts": row.max_restarts,
            "spares": row.request.get("spareEnvironmentIds") or [],
            "preflight": row.request.get("preflight") or "off",
        }
        row.save(update_fields=["spec"])


class Migration(migrations.Migration):
    dependencies = [("training", "0004_task_claimed_at")]

    operations = [
        migrations.AddField(
            model_name="task",
            name="kind",
            field=models.CharField(
                choices=[(kind, kind) for kind in apps.training.states.TaskKind],
                db_index=True,
                default=apps.training.states.TaskKind.TRAINING,
                max_length=20,
            ),
        ),
        migrations.RunPython(forwards, migrations.RunPython.noop),
    ]

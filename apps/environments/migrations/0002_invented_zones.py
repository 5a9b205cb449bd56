"""Environments on Kubernetes that nobody has asked to keep to a zone: a zone that is called as its cluster was made by
the platform, and no node bears it."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import F


def forget(apps: Apps, _editor: BaseDatabaseSchemaEditor) -> None:
    rows = apps.get_model("environments", "Hosted").objects
    named = rows.filter(environment__cluster__backend="kubernetes", environment__zone__name=F("environment__cluster__name"))
    for hosted in named.iterator():
        hosted.spec = {**hosted.spec, "zone": ""}
        hosted.save(update_fields=["spec"])


class Migration(migrations.Migration):
    dependencies = [("environments", "0001_initial")]

    operations = [migrations.RunPython(forget, migrations.RunPython.noop)]

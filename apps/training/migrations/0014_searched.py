import logging

from django.db import Error, migrations, models, transaction

log = logging.getLogger(__name__)

SEARCHED = {"training_task_name_search": "name", "training_task_id_search": "id"}
"""Index and column. `icontains` compares upper case on PostgreSQL, so that is what the index holds."""


def forwards(apps, schema_editor):
    """An index of three-letter pieces where PostgreSQL has them. A database whose owner may not install `pg_trgm`
    goes on without: a search then reads all rows, as before."""
    if schema_editor.connection.vendor != "postgresql":
        return
    try:
        with transaction.atomic(using=schema_editor.connection.alias):
            schema_editor.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except Error as error:
        log.warning("searches of tasks go without an index, since pg_trgm cannot be installed: %s", error)
        return
    for index, column in SEARCHED.items():
        schema_editor.execute(
            f"CREATE INDEX {index} ON training_task USING gin (UPPER({column}::text) gin_trgm_ops)"
        )


def backwards(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        for index in SEARCHED:
            schema_editor.execute(f"DROP INDEX IF EXISTS {index}")


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0013_counted_by_state'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='task',
            index=models.Index(fields=['name'], name='training_task_name'),
        ),
        migrations.AddIndex(
            model_name='task',
            index=models.Index(fields=['kind', '-created_at', 'id'], name='training_task_newest'),
        ),
        migrations.RunPython(forwards, backwards),
    ]

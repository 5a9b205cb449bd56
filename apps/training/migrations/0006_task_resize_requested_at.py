from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0005_task_kind")]

    operations = [
        migrations.AddField("task", "resize_requested_at", models.DateTimeField(blank=True, null=True)),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("training", "0014_searched"),
    ]

    operations = [
        migrations.CreateModel(
            name="Watch",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("epoch", models.BigIntegerField(default=0)),
                ("version", models.BigIntegerField(default=0)),
                ("members", models.JSONField(default=dict)),
            ],
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0026_log_patterns'),
    ]

    operations = [
        migrations.AddField(
            model_name='checkpoint',
            name='nodes',
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name='checkpoint',
            name='is_complete',
            field=models.BooleanField(db_default=True, default=True),
        ),
    ]

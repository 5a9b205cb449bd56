from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0003_preflight'),
    ]

    operations = [
        migrations.AddField(
            model_name='task',
            name='claimed_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]

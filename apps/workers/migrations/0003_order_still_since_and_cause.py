from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workers', '0002_order_asked'),
    ]

    operations = [
        migrations.AddField(
            model_name='order',
            name='cause',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='order',
            name='still_since',
            field=models.FloatField(null=True),
        ),
    ]

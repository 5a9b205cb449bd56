from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0023_parameters_and_media'),
    ]

    operations = [
        migrations.AddField(
            model_name='checkpoint',
            name='source',
            field=models.CharField(db_default='script', default='script', max_length=10),
        ),
        migrations.AddField(
            model_name='checkpoint',
            name='layout',
            field=models.CharField(blank=True, db_default='', default='', max_length=20),
        ),
    ]

"""`manage.py shell` reads this: the environments that seed.py made are removed."""

from apps.clusters.models import DevEnvironment

DevEnvironment.objects.filter(pk__startswith="env-seed-").delete()

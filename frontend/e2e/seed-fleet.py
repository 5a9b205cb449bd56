"""`manage.py shell` reads this: FERMI_SEED nodes of eight GPUs, ten times as many tasks, and what they did in a week."""

import os

from bench import fleet

fleet.make_fleet(nodes=int(os.environ["FERMI_SEED"]))

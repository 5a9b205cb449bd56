"""What the platform runs inside of somebody's dev environment: it begins node runners there, tells what they and their
ranks do, and ends them. Standard library only, Python 3.9 or later; carried there as a bundle
(`fermi.launch.inside.bundle`).

bootstrap.py   the first words: unpacks the bundle where it is not yet, and runs a module of it
home.py        the folder of the environment's own user in which all of it lies
wire.py        what is said over the stream
__main__.py    one stream: requests are answered one after the other; `follow` goes on beside them
orders.py      begin, cancel, forget: an attempt's folder and its node runner
following.py   the status, output, pulses and telemetry of attempts, as they change
survey.py      what the environment has, put together of:
  interpreters.py   its Python interpreters, and which one a notebook would run
  packages.py       what one of them has installed, as that interpreter tells it (`installed.py`)
  holders.py        who holds the GPUs' memory, and Jupyter's kernels
  container.py      memory, processors, network, which life of the container
  running.py        the processes of its user
installing.py  pip, because somebody asked for it
"""

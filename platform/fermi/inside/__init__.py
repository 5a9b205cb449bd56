"""What the platform runs inside of somebody's dev environment: it begins node runners there, tells what they and their
ranks do, and ends them. Standard library only, Python 3.9 or later; carried there as a bundle
(`fermi.engines.inside.bundle`).

bootstrap.py   the first words: chooses the user's folder for all of it, unpacks the bundle, runs a module of it
wire.py        what is said over the stream
__main__.py    one stream: requests are answered one after the other; `follow` goes on beside them
orders.py      begin, cancel, forget: an attempt's folder and its node runner
standby.py     the process from which node runners are forked, where one stands by
progress.py    the status, output, pulses and telemetry of attempts, as they change
written.py     files of tasks: what ranks have written, listed and read; what the platform sends
survey.py      what the environment has, put together of:
  interpreters.py   its Python interpreters, and which one a notebook would run
  packages.py       what one of them has installed, as that interpreter tells it (`installed.py`)
  holders.py        who holds memory: the GPUs', and that of notebooks
  kernels.py        Jupyter's kernels, and the end of one
  container.py      memory, processors, network, which life of the container
  user_processes.py  the processes of its user
life.py        tells one life of a container from the next
beside.py      a command or a terminal beside a rank
chosen.py      which interpreter somebody means, and whether ranks can run with it
installation.py  pip, because somebody asked for it
"""

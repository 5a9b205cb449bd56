"""The platform's program inside of a user's dev environment: starts node runners there, reports their state and output,
and ends them. Standard library only, Python 3.9 or later; sent there as a bundle (`fermi.engines.inside.bundle`).

bootstrap.py          runs first: chooses the user's folder for all files, unpacks the bundle, runs a module of it
protocol.py           messages on the stream
__main__.py           one stream: requests are answered one after the other; `follow` runs in parallel
node_runs.py          an attempt's folder and its node runner: start, clean up
standby.py            the standby process, which node runners are forked from
progress.py           reports status, output, pulses and telemetry of attempts as they change
output_files.py       files of tasks: lists and sends what ranks have written, receives files from the platform
survey.py             what the environment has, collected from:
  interpreters.py     its Python interpreters, and the one that a notebook would run
  packages.py         what one of them has installed, as that interpreter reports it (`installed.py`)
  memory_holders.py   processes that hold memory: the GPUs', and that of notebooks
  kernels.py          Jupyter's kernels, and how one is ended
  container.py        memory, processors, network
  user_processes.py   the processes of its user
container_life.py     distinguishes restarts of a container
rank_exec.py          a command or a terminal next to a rank
chosen_interpreter.py the interpreter that a user named, and whether ranks can run with it
installation.py       installs packages on a user's request
"""

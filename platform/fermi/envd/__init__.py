"""What stands in each run of an environment: starts its service, tells what goes on, opens what is asked for inside.
Standard library only, Python 3.11 or later (`beside` and what it needs: 3.9); ships with `fermi.runner` and
`fermi.telemetry`.

    python -m fermi.envd SPEC.json [-]     see `__main__.py`

__main__.py    from the lock to the last process; keeper.py     one run's life and its status file
wire.py        what is said to a keeper; callers.py             who says it, and what is answered
port.py        bytes between a caller and a port; command.py    a command or terminal for a caller
beside.py      a command beside a rank, where no keeper stands
service.py     up, restarted, failed; kinds.py                  what runs of each kind, and what it needs first
jupyter.py     how JupyterLab is started and asked; editor.py   where the editor comes from
children.py    processes, from the fork to the last; held.py    which of them hold memory and GPUs
"""

"""envd, the environment daemon: one process in each run of an environment that starts its service, reports its state,
and opens ports and commands inside. Standard library only, Python 3.11 or later (`rank_exec` and what it needs: 3.9);
ships with `fermi.runner` and `fermi.telemetry`.

    python -m fermi.envd SPEC.json [-]     see `__main__.py`

    __main__.py         from the lock to the last process
    supervisor.py       lifecycle of one run, and its status file
    protocol.py         requests and answers
    server.py           serves connections
    port_forward.py     bytes between a client and a port
    exec_session.py     a command or terminal for a client
    rank_exec.py        a command next to a rank, where no daemon runs
    service.py          starts, restarts and gives up the service; kinds: JupyterLab, VS Code, a start script
    jupyter.py          how JupyterLab is started and queried
    editor.py           installs VS Code
    children.py         processes, from the fork to the last
    memory_holders.py   which of them hold memory and GPUs
"""

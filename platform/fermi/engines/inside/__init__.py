"""Attempts, or nodes of them, that run inside of dev environments: what engines share that can enter one
(`Backend.enter`).

    render.py     a node of a plan as an order for `fermi.inside`; pure
    bundle.py     our modules as one archive
    session.py    requests to `fermi.inside` over one stream
    start.py      uploads the task's files and starts the node's runner there
    upload.py     which files are sent into an environment
    download.py   files that ranks have written, into the task's folders
    followers.py  one stream per environment for all reports and requests; into the files of `carried_logs`
    observation.py  an observation from these files; pure

What an engine adds: how a stream is opened, whether the environment is still the one in which a node was started, and
what became of it if not.
"""

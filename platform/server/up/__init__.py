"""The embedded platform: web, worker, beat, watcher and broker under one foreground command.

`python -m server.up` is what `make up` runs once everything is installed, `python -m server.up down` is `make down`,
`python -m server.up dev` is `make dev`.
Standard library only, so that it is there at once and stands when Django does not.

    checks      what must hold before anything is started
    record      one platform per data directory; who its processes are
    child       a process that is started again when it dies
    broker      the embedded Redis or Valkey
    supervisor  the order of starting and stopping
    supervision processes that hang (watchdog) or were changed (limits)
    dev         a platform that follows its own source
"""

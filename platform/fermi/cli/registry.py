"""The commands there are: one line each. Modules are imported on use."""

from typing import NamedTuple


class Entry(NamedTuple):
    """The module in `commands`, the name in it, and what it does in a few words (translated where they are shown)."""

    module: str
    name: str
    summary: str


COMMANDS = {
    "login": Entry("account", "login", "Sign in and remember where the platform is"),
    "login-link": Entry("login_link", "login_link", "On the platform's own machine: a one-time sign-in link"),
    "whoami": Entry("account", "whoami", "Show who you are and your projects"),
    "version": Entry("account", "version", "Show the version and where the platform is"),
    "envs": Entry("inventory", "envs", "Dev environments: where training runs"),
    "clusters": Entry("clusters", "clusters", "Clusters, and whether one is fit to train on"),
    "workers": Entry("workers", "workers", "Workers of bare-metal hosts, and join tokens for hosts"),
    "groups": Entry("workers", "groups", "Groups of workers: who runs a script together, in which order"),
    "secrets": Entry("secrets", "secrets", "Secrets of a project: values that tasks get and nobody reads"),
    "zones": Entry("inventory", "zones", "Availability zones"),
    "datasets": Entry("inventory", "datasets", "Datasets and their versions"),
    "models": Entry("inventory", "models", "Models: recipes and their defaults"),
    "frameworks": Entry("inventory", "frameworks", "Distributed-training frameworks"),
    "recommend": Entry("recommend", "recommend", "Which framework suits a model on given environments"),
    "preflight": Entry("preflight", "preflight", "Test whether nodes can train together"),
    "preview": Entry("submit", "preview", "Show exactly what a task would run, without creating it"),
    "submit": Entry("submit", "submit", "Create a training task"),
    "list": Entry("tasks", "list_tasks", "Training tasks, newest first"),
    "get": Entry("tasks", "get", "One task: nodes, ranks, attempts"),
    "logs": Entry("watch", "logs", "What the ranks printed"),
    "metrics": Entry("watch", "metrics", "Loss and other numbers by step"),
    "events": Entry("watch", "events", "What happened to a task"),
    "checkpoints": Entry("watch", "checkpoints", "What a task can be resumed from"),
    "stop": Entry("tasks", "stop", "Stop tasks"),
    "retry": Entry("tasks", "retry", "Run a task again, from its newest checkpoint"),
    "clone": Entry("tasks", "clone", "Print a task's request, to change and submit it"),
    "worker": Entry("worker", "worker", "Make this host a worker: runs ranks for the platform"),
    "scripts": Entry("scripts", "scripts", "Download a task as scripts to start it by hand"),
    "render": Entry("scripts", "render", "Write scripts that start a training by hand, without a platform"),
    "launch": Entry("launch", "launch", "Start the ranks of this machine by hand"),
    "quickstart": Entry("quickstart", "quickstart", "Common ways to start, common problems and their fixes"),
    "delete": Entry("tasks", "delete", "Delete ended tasks with their logs and checkpoints"),
}

"""The commands there are: one line each. Modules are imported on use."""

from typing import NamedTuple


class Entry(NamedTuple):
    """The module, the command's name in it, and what it does in a few words (translated where they are shown)."""

    module: str
    name: str
    summary: str


COMMANDS = {
    "login": Entry("fermi.cli.account", "login", "Sign in and remember where the platform is"),
    "login-link": Entry("fermi.cli.login_link", "login_link", "On the platform's own machine: a one-time sign-in link"),
    "whoami": Entry("fermi.cli.account", "whoami", "Show who you are and your projects"),
    "version": Entry("fermi.cli.account", "version", "Show the version and where the platform is"),
    "envs": Entry("fermi.cli.inventory", "envs", "Dev environments: where training runs"),
    "clusters": Entry("fermi.cli.clusters", "clusters", "Clusters, and whether one is fit to train on"),
    "workers": Entry("fermi.cli.workers", "workers", "Workers of bare-metal hosts, and join tokens for hosts"),
    "groups": Entry("fermi.cli.workers", "groups", "Groups of workers: who runs a script together, in which order"),
    "secrets": Entry("fermi.cli.secrets", "secrets", "Secrets of a project: values that tasks get and nobody reads"),
    "zones": Entry("fermi.cli.inventory", "zones", "Availability zones"),
    "datasets": Entry("fermi.cli.inventory", "datasets", "Datasets and their versions"),
    "models": Entry("fermi.cli.inventory", "models", "Models: recipes and their defaults"),
    "frameworks": Entry("fermi.cli.inventory", "frameworks", "Distributed-training frameworks"),
    "recommend": Entry("fermi.cli.recommend", "recommend", "Which framework suits a model on given environments"),
    "preflight": Entry("fermi.cli.preflight", "preflight", "Test whether nodes can train together"),
    "preview": Entry("fermi.cli.submit", "preview", "Show exactly what a task would run, without creating it"),
    "submit": Entry("fermi.cli.submit", "submit", "Create a training task"),
    "list": Entry("fermi.cli.tasks", "list_tasks", "Training tasks, newest first"),
    "get": Entry("fermi.cli.tasks", "get", "One task: nodes, ranks, attempts"),
    "logs": Entry("fermi.cli.watch", "logs", "What the ranks printed"),
    "metrics": Entry("fermi.cli.watch", "metrics", "Loss and other numbers by step"),
    "events": Entry("fermi.cli.watch", "events", "What happened to a task"),
    "checkpoints": Entry("fermi.cli.watch", "checkpoints", "What a task can be resumed from"),
    "stop": Entry("fermi.cli.tasks", "stop", "Stop tasks"),
    "retry": Entry("fermi.cli.tasks", "retry", "Run a task again, from its newest checkpoint"),
    "clone": Entry("fermi.cli.tasks", "clone", "Print a task's request, to change and submit it"),
    "worker": Entry("fermi.cli.worker", "worker", "Make this host a worker: runs ranks for the platform"),
    "scripts": Entry("fermi.cli.scripts", "scripts", "Download a task as scripts to start it by hand"),
    "render": Entry("fermi.cli.scripts", "render", "Write scripts that start a training by hand, without a platform"),
    "launch": Entry("fermi.cli.launch", "launch", "Start the ranks of this machine by hand"),
    "quickstart": Entry("fermi.cli.quickstart", "quickstart", "Common ways to start, common problems and their fixes"),
    "delete": Entry("fermi.cli.tasks", "delete", "Delete ended tasks with their logs and checkpoints"),
}

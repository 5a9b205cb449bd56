"""The scheduler in simulation: months of tasks, failures and preemptions around `make_decision`, without a clock.

    random_clusters   small clusters, projects, tasks and failures by a seed
    trace             30 days of the load that was published of real clusters, by a seed
    engine            carries a decision out and moves time from event to event
    rules             what must hold in every decision, and over a whole run
    baselines         FIFO and EASY backfill in place of `make_decision`
    figures           utilisation, waits and lost work of a run

The tests in this folder use it, and `python -m bench sharing`.
"""

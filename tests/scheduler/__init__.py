"""The scheduler in simulation: months of tasks, failures and preemptions around `turns.decide`, without a clock.

    worlds, trace     what happens: environments, projects, tasks, incidents, by a seed
    engine            carries a decision out and moves time from event to event
    rules             what must hold in every decision, and over a whole run
    baselines         FIFO and EASY backfill in place of `turns.decide`
    figures           utilisation, waits and lost work of a run

The tests beside it use it, and `python -m bench sharing`.
"""

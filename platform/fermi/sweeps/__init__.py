"""Sweeps: many trials of one request with other parameters, to find those whose objective is best.

    spec       what a user describes: parameters, objective, method, pruning, budget
    space      the parameters as ranges and choices, with conditions
    search     which parameters the next trial gets
    pruning    which trials are paused, promoted or stopped early
    budget     when no further trial starts
    decision   what one pass over a sweep does, from what is stored
    trial_request  the request of a trial's task
    documents  sweeps as other tools describe them

Pure: the database has the truth, and the same trials always give the same next one.
"""

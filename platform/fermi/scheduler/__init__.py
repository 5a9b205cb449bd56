"""The scheduler: which task starts when, on which environments, and what is preempted. Pure functions of one
`SchedulerSnapshot`.

    SchedulerSnapshot ──order_tasks──▶ who is considered first ──make_decision──▶ starts, reservations, preemptions, and
                                                                                  why each other task waits
              uses capacity            what is free, will be, and is reserved for whom
                   placement           which environments (`gpu_packing`: of which sizes)
                   limits              what a project may use
                   preemption          which tasks are preempted
                   environment_groups  equal environments as one group
    SchedulerSnapshot ──forecast──▶ when each waiting task will probably start
                      ──what_if───▶ which change would let one start now
    request_text        requests as text, whether one can be satisfied at all, and why these environments were chosen

The platform loads the snapshot and carries out the decision (`apps.training.queue`); tests simulate months of it.
"""

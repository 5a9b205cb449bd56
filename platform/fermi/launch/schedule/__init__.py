"""Whose turn it is, on which environments, and what gives way: pure functions of one `Scene`.

    Scene ──order──▶ who is asked first ──turns.decide──▶ starts, reservations, preemptions, why each other one waits
                                              uses placement  which environments
                                                   limits     what a project may
                                                   preemption who gives way
    Scene ──forecast──▶ when each that waits will probably start

The platform loads the scene and carries out the decision (`apps.training.queue`); tests simulate months of it.
"""

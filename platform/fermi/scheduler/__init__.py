"""Whose turn it is, on which environments, and what gives way: pure functions of one `Scene`.

    Scene ──order──▶ who is asked first ──turns.decide──▶ starts, reservations, preemptions, why each other one waits
                                              uses board      what is free, will be, and is kept for whom
                                                   placement  which environments (`mixture`: of which sizes)
                                                   limits     what a project may
                                                   preemption who gives way
                                                   stock      equal environments as one lot
    Scene ──forecast──▶ when each that waits will probably start
          ──sooner────▶ what change would let one start now
    wanted              what was asked for in words, whether it can be had at all, and why just these were chosen

The platform loads the scene and carries out the decision (`apps.training.queue`); tests simulate months of it.
"""

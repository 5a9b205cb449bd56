"""Runs the processes of one node on one host, and outlives the process that started it. Standard library only.

How a runner is started                         What all of them do
  fork_server.py  imports the training stack      prepare.py       waits for the other nodes (barrier.py), resolves
                  once, then forks runners                         late values (late_values.py), chooses the interface
  pod.py          main process of a pod                            (interfaces.py)
  slurm.py        task of a Slurm step            node.py          lifecycle of a node; rank.py: how a rank starts
  inside.py       in a dev environment            stop_requests.py signals, a file, the end of standard input
  foreground.py   in a terminal                   output_pipes.py  output of ranks, where a runner forwards it

Why a node failed                               What is stored and read by the platform
  first_failure.py  which rank failed first       files.py         spec, lock, status, pulses, stop request
  causes.py         what only this machine knows  status.py        reads a status, checks that its runner is alive
  ports.py          which process has the port    terminate.py     stops a runner in any state
  disk_space.py     which disk is full            processes.py     pid and start time, sessions, signals
  kernel.py         what the OOM killer did       sandbox.py       which paths ranks can access
  exit_codes.py     exit codes                    seccomp.py       which processes they can change
  run_names.py      names of attempts and runs

Which rank makes no progress
  watch.py          samples all ranks once a second and examines those that do not advance
  pulse.py          progress of one rank          stall_threshold.py  allowed silence, learnt from its past
  stall_evidence.py whether it does anything      stacks.py           where its threads are
  activity.py       what its processes used       thread_waits.py     what its threads wait for
  links.py          connections without answer    leftover_ranks.py   ranks that have nothing left to wait for
"""

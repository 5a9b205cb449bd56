"""What only a machine with a GPU can show, as checks that run one after the other within minutes (docs/gpu.md).

    check.py     what a check is, and the list of them
    context.py   what a check is given: the machine, the platform, ways to run scripts, a place for figures
    machine.py   what is there: card, driver, CUDA, packages
    platform.py  the embedded platform that the checks share
    run_check.py runs one check in a process of its own
    report.py    the table
    checks/      the checks, a module for each area of the table
    jobs/        scripts that they train: plain ones, as users write them

`python -m tests.gpu` runs them; `scripts/gpu_check.py` prepares a bare machine first. Where there is no GPU, what needs
CUDA is skipped with the reason, and the rest runs on the CPU.
"""

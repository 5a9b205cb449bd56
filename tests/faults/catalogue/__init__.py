"""Every fault that we know how to make, and whether the platform names it: see docs/faults.md.

    python -m tests.faults.catalogue [name …]           what `make faults` runs

`faults` holds a file for each fault, `healthy` one for each kind of run with which nothing is wrong. `fault` says what
they are made of, `lab` is what they run on, `trial` lets one happen, `answer` reads what the platform says of it,
`report` prints the table.
"""

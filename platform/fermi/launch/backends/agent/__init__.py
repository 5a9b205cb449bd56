"""Training on hosts where worker agents run (`fermi worker`): one worker per GPU, one rank per worker."""

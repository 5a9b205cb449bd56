"""What a distributed job is: its spec, ranks, environment variables, batches, memory and network. Pure."""

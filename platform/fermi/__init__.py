"""Fermi's toolkit: describe, launch, follow and run distributed training. Knows nothing of the web platform's code."""

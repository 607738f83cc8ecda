"""Agents wing: benchmarks whose samples are tasks to act in, over many turns."""

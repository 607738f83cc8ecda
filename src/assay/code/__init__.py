"""Code wing: benchmarks about programs, their tests, and the models that write both."""

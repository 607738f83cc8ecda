"""Speech wing: benchmarks whose systems speak or listen."""

"""Learning wing: benchmarks whose systems are estimators."""

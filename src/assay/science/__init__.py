"""Science wing: benchmarks on simulations and measurements of nature."""

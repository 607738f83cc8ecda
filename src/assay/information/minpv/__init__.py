"""MinPV: density ratios and densities from time scores, on paths of minimum variance."""

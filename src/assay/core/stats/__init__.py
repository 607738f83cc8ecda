"""Statistics over arrays: intervals, paired tests, ranks, agreement, ratings, divergences, trends."""

"""The server: runs to look at, leaderboards, questions for people. `assay serve` starts it."""

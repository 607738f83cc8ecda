"""Things under test, and what they act with."""

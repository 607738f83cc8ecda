"""Leaderboards: submissions, the referee that scores them, the worker it runs in, and the client that sends them."""

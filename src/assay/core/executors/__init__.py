"""Executors: how pending trials become outcomes, on this machine or on many."""

"""MINTO."""

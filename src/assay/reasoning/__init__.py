"""Reasoning wing."""

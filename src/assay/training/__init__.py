"""Rooms of the training wing."""

"""Rooms of the information wing."""

"""Recipes: the published findings at small scale, and the replay of an episode."""

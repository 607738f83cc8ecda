"""TTSDS2: how close synthetic speech is, as a distribution, to real speech. Distances, features, suite, pipeline."""

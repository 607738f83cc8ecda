"""Simulators of wavefields and of two chaotic systems; each gives rows of time by sensors."""

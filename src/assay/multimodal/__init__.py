"""Multimodal wing: benchmarks whose samples are pictures, text, or both."""

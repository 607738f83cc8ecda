"""Representations wing: benchmarks of embeddings and of what models hold inside."""

"""Runs in the browser: lists, scores, records, exchanges, comparisons, runs that are going on."""

"""The error of estimators and generators: a sentence for assay, a ValueError for scikit-learn."""

from __future__ import annotations

from assay.core.errors import UsageError


class BadInput(UsageError, ValueError):
    """An argument that cannot be used; the message names it."""

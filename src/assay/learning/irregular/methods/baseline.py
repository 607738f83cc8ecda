"""What every classifier should beat."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.learning.irregular.array import Array
from assay.learning.irregular.methods.base import Panel, SeriesClassifier


class Majority(SeriesClassifier):
    """The class shares of the training side, whatever is shown."""

    def _fit(self, panel: Panel, codes: Array) -> None:
        self._shares = np.bincount(codes, minlength=len(self.classes_)) / len(codes)

    def _proba(self, panel: Panel) -> Array:
        return np.tile(self._shares, (len(panel), 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

"""Small real data that installed packages carry, for where the real set cannot be had."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

from assay.core.datasets.sources import Data, package_file, stand_in

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def digits(instead_of: str = "") -> tuple[NDArray[np.uint8], NDArray[Any], Data]:
    """Handwritten digits, 8 x 8 pixels of 0 to 16, from scikit-learn's package (not imported).

    Parameters
    ----------
    instead_of
        Data set whose place they take; then they are labelled a stand-in.

    Returns
    -------
    (images, labels, data)
        Images of shape (1797, 8, 8), labels of shape (1797,), provenance.

    References
    ----------
    Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits, UCI; its test part. CC BY 4.0.
    """
    import numpy as np

    data = package_file("sklearn", "datasets/data/digits.csv.gz", licence="CC-BY-4.0", extra="asciieval")
    with gzip.open(str(data.path), "rt") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.int64)
    images = table[:, :64].astype(np.uint8).reshape(-1, 8, 8)
    return images, table[:, 64], stand_in(data, instead_of) if instead_of else data

"""The methods as scikit-learn estimators, by name; an estimator's module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from assay.core.errors import MissingExtra, unknown_name

CLASSES: dict[str, tuple[str, str, str]] = {
    "upu": ("risk", "UPUClassifier", "risk"),
    "nnpu": ("risk", "NNPUClassifier", "risk"),
    "nnpusb": ("risk", "NNPUSBClassifier", "risk"),
    "vpu": ("risk", "VPUClassifier", "risk"),
    "bbepu": ("risk", "BBEPUClassifier", "risk"),
    "lbe": ("risk", "LBEClassifier", "risk"),
    "puet": ("trees", "PUETClassifier", "risk"),
    "distpu": ("risk", "DistPUClassifier", "risk"),
    "pulda": ("risk", "PULDAClassifier", "risk"),
    "selfpu": ("selecting", "SelfPUClassifier", "disambiguation"),
    "p3mixc": ("selecting", "P3MixCClassifier", "disambiguation"),
    "p3mixe": ("selecting", "P3MixEClassifier", "disambiguation"),
    "robustpu": ("selecting", "RobustPUClassifier", "disambiguation"),
    "holisticpu": ("trending", "HolisticPUClassifier", "disambiguation"),
    "lagam": ("trending", "LaGAMClassifier", "disambiguation"),
    "pulcpbf": ("trending", "PULCPBFClassifier", "disambiguation"),
    "vaepu": ("generative", "VAEPUClassifier", "generative"),
    "pan": ("generative", "PANClassifier", "generative"),
    "cgenpu": ("generative", "CGenPUClassifier", "generative"),
    "boost": ("boosting", "PUBoostClassifier", "risk"),
    "pn": ("risk", "PNClassifier", "oracle"),
}
"""Name: (module, class, family). upu and boost are baselines beside the paper's eighteen, pn is the oracle."""

PAPER = tuple(name for name in CLASSES if name not in ("upu", "boost", "pn"))


def estimator_class(name: str) -> Any:
    """The class of the method called ``name``.

    Raises
    ------
    UsageError
        No such method.
    MissingExtra
        torch, scikit-learn or numba is not installed.
    """
    if name not in CLASSES:
        raise unknown_name("method of 'pu_bench'", name, CLASSES)
    module, cls, _ = CLASSES[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), cls)
    except ModuleNotFoundError as error:
        if error.name and not error.name.startswith("assay"):
            raise MissingExtra(f"Method {name!r}", "pu_bench") from error
        raise


def make_estimator(name: str, **options: Any) -> Any:
    """An estimator by name, with its options.

    Raises
    ------
    UsageError
        An option that it does not have, with the nearest that it has.
    """
    cls = estimator_class(name)
    known = cls._get_param_names()
    for key in options:
        if key not in known:
            raise unknown_name(f"option of method {name!r}", key, known)
    return cls(**options)

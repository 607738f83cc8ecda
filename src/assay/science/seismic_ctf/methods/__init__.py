"""Forecasters by name; a library is imported when one that needs it is built."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from assay.core.errors import MissingExtra, unknown_name


class Entry(NamedTuple):
    """Where a method's class is, its settings, the name it is published by, its family."""

    home: str
    settings: dict[str, Any]
    title: str
    family: str


_CONSTANT, _MODES, _NETWORK = "naive:Constant", "dmd:DynamicModes", "learned:OneStepNetwork"
_FNO = {"kind": "fno", "rank": 0, "hidden": 16, "layers": 3, "window": 8, "epochs": 5, "size": 32, "batch": 32}
_DEEPONET = {"kind": "deeponet", "rank": 0, "hidden": 64, "window": 8, "size": 40}
_KAN = {"kind": "kan", "rank": 16, "hidden": 8, "window": 4, "size": 5, "epochs": 10}

CATALOGUE: dict[str, Entry] = {
    "zeros": Entry(_CONSTANT, {"kind": "zeros"}, "Baseline Zeros", "baseline"),
    "average": Entry(_CONSTANT, {"kind": "average"}, "Baseline Average", "baseline"),
    "last": Entry(_CONSTANT, {"kind": "last"}, "Last row", "baseline"),
    "random": Entry(_CONSTANT, {"kind": "random"}, "Random constant", "baseline"),
    "esn": Entry("reservoir:EchoState", {}, "Reservoir", "recurrent"),
    "lstm": Entry(_NETWORK, {"kind": "lstm"}, "LSTM", "recurrent"),
    "ode_lstm": Entry(_NETWORK, {"kind": "ode_lstm", "epochs": 20}, "ODE-LSTM", "recurrent"),
    "spacetime": Entry(_NETWORK, {"kind": "spacetime", "layers": 2, "epochs": 20}, "Spacetime", "recurrent"),
    "dmd": Entry(_MODES, {}, "DMD", "linear"),
    "hodmd": Entry(_MODES, {"delay": 10}, "HigherOrder DMD", "linear"),
    "optdmd": Entry(_MODES, {"kind": "optimised", "rank": 20, "delay": 4}, "Opt DMD", "linear"),
    "pdmd": Entry("dmd:ParametricModes", {}, "Parametric DMD", "linear"),
    "nlinear": Entry("windows:LinearWindows", {"kind": "nlinear"}, "NLinear", "linear"),
    "dlinear": Entry("windows:LinearWindows", {"kind": "dlinear"}, "DLinear", "linear"),
    "koopman": Entry("sparse_dynamics:Koopman", {}, "PyKoopman", "linear"),
    "sindy": Entry("sparse_dynamics:SparseDynamics", {}, "SINDy", "equations"),
    "neural_ode": Entry(_NETWORK, {"kind": "neural_ode", "hidden": 64}, "NeuralODE", "equations"),
    "pinn": Entry("physics:PhysicsInformed", {}, "PINN", "equations"),
    "fno": Entry(_NETWORK, _FNO, "FNO", "operator"),
    "deeponet": Entry(_NETWORK, _DEEPONET, "DeepONet", "operator"),
    "kan": Entry(_NETWORK, _KAN, "KAN", "operator"),
    "chronos": Entry("foundation:Chronos", {}, "Chronos", "pretrained"),
    "tabpfn": Entry("foundation:TabPFN", {}, "TabPFN", "pretrained"),
}


class Factory:
    """Makes one method; hyper-parameters are options (``method:lstm?hidden=64``). Its class is imported when asked."""

    def __init__(self, name: str) -> None:
        if name not in CATALOGUE:
            raise unknown_name("method of seismic_ctf", name, CATALOGUE)
        self.name, self.entry = name, CATALOGUE[name]

    def _class(self) -> type:
        module, cls = self.entry.home.split(":")
        try:
            return getattr(import_module(f"{__name__}.{module}"), cls)
        except ImportError as error:
            raise MissingExtra(f"The method {self.entry.title} ({error.name})", "seismic_ctf") from None

    @property
    def __signature__(self) -> inspect.Signature:
        try:
            known = inspect.signature(self._class()).parameters
        except MissingExtra as error:
            raise AttributeError(str(error)) from None
        fixed = self.entry.settings
        return inspect.Signature(
            [
                p.replace(default=fixed.get(name, p.default), kind=inspect.Parameter.KEYWORD_ONLY)
                for name, p in known.items()
                if name not in ("kind", "random_state")
            ]
        )

    @property
    def __annotations__(self) -> dict[str, Any]:
        return typing.get_type_hints(self._class().__init__)

    def __call__(self, **settings: Any) -> Any:
        made = self._class()(**self.entry.settings)
        return made.set_params(**settings) if settings else made


def build(name: str, **settings: Any) -> Any:
    """An unfitted forecaster with hyper-parameters.

    Raises
    ------
    UsageError, MissingExtra
        There is no such method or parameter; its library is not installed.
    """
    return Factory(name)(**settings)


def methods() -> dict[str, Callable[..., Any]]:
    """Factories by name."""
    return {name: Factory(name) for name in CATALOGUE}

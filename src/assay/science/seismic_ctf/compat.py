"""The framework's own function names over a folder of data sets, so that model folders written for it run unchanged.

``with Framework(root, results).installed():`` makes ``ctf4science.data_module`` and ``ctf4science.eval_module``
importable; or call the methods. Errors are ValueError and FileNotFoundError, as callers expect there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.science.seismic_ctf import scoring
from assay.science.seismic_ctf.data import CTFDataset, Pair, validation_split
from assay.science.seismic_ctf.definition import parse_pairs

DATA = (
    "parse_pair_ids", "load_dataset", "load_validation_dataset", "get_config", "get_metadata", "get_applicable_plots",
    "get_prediction_timesteps", "get_training_timesteps", "get_validation_training_timesteps",
    "get_validation_prediction_timesteps",
)  # fmt: skip
EVAL = ("evaluate", "evaluate_custom", "save_results", "extract_metrics_in_order")


class Framework:
    """Data sets under ``root`` by the framework's functions; ``save_results`` writes below ``results``."""

    def __init__(self, root: Path | str, results: Path | str = "results") -> None:
        self.root, self.results = Path(root), Path(results)

    def _set(self, dataset_name: str) -> CTFDataset:
        if not (self.root / dataset_name).is_dir():
            raise FileNotFoundError(f"There is no data set {dataset_name!r} in {self.root}.")
        return _plain(CTFDataset.load, dataset_name, self.root)

    def _pair(self, dataset_name: str, pair_id: int) -> Pair:
        data = self._set(dataset_name)
        _plain(data.definition.pair, pair_id)
        if missing := data.missing(pair_id):
            raise FileNotFoundError(f"{', '.join(missing)} not found in {data.folder / 'train'}.")
        return _plain(data.pair, pair_id)

    def get_config(self, dataset_name: str) -> dict[str, Any]:
        """The data set's definition."""
        return self._set(dataset_name).definition.config()

    def get_metadata(self, dataset_name: str) -> dict[str, Any]:
        """delta_t, spatial_dimension, shapes, starts."""
        return self.get_config(dataset_name)["metadata"]

    def get_applicable_plots(self, dataset_name: str) -> list[str]:
        """Names of the figures that the data set asks for."""
        return list(self._set(dataset_name).definition.visualizations)

    def parse_pair_ids(self, dataset_config: Mapping[str, Any]) -> list[int]:
        """Pairs of a configuration's ``dataset`` section: ``name`` and perhaps ``pair_id``."""
        if not dataset_config.get("name"):
            raise ValueError("The dataset section needs a name.")
        available = self._set(dataset_config["name"]).pair_ids
        return _plain(parse_pairs, dataset_config.get("pair_id", "all"), available)

    def load_dataset(
        self, dataset_name: str, pair_id: int, transpose: bool = False
    ) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Training matrices and burn-in; ``transpose`` = sensors as rows. Copies: callers change them."""
        pair = self._pair(dataset_name, pair_id)
        return [_turned(x, transpose) for x in pair.train], None if pair.init is None else _turned(pair.init, transpose)

    def load_validation_dataset(
        self, dataset_name: str, pair_id: int, train_split: float = 0.8, transpose: bool = False
    ) -> tuple[list[np.ndarray], np.ndarray, np.ndarray | None]:
        """Training, validation and burn-in matrices of the split for tuning."""
        split = _plain(validation_split, self._pair(dataset_name, pair_id), train_split)
        init = None if split.init is None else _turned(split.init, transpose)
        return [_turned(x, transpose) for x in split.train], _turned(split.validation, transpose), init

    def get_prediction_timesteps(self, dataset_name: str, pair_id: int, subset: str = "test") -> np.ndarray:
        """Times of the test rows or of the ``initialization`` rows."""
        d = self._set(dataset_name).definition
        spec = _plain(d.pair, pair_id)
        if subset not in ("test", "initialization"):
            raise ValueError(f"subset must be test or initialization; got {subset!r}.")
        name = spec.test if subset == "test" else spec.init
        if name is None:
            raise ValueError(f"Pair {pair_id} of {dataset_name} has no {subset} matrix.")
        return _plain(d.times, name)

    def get_training_timesteps(self, dataset_name: str, pair_id: int) -> list[np.ndarray]:
        """Times of the rows of each training matrix."""
        d = self._set(dataset_name).definition
        return [_plain(d.times, name) for name in _plain(d.pair, pair_id).train]

    def get_validation_training_timesteps(
        self, dataset_name: str, pair_id: int, train_split: float = 0.8
    ) -> list[np.ndarray]:
        """Times of the training rows of the split for tuning."""
        return list(_plain(validation_split, self._pair(dataset_name, pair_id), train_split).times.train)

    def get_validation_prediction_timesteps(
        self, dataset_name: str, pair_id: int, train_split: float = 0.8
    ) -> np.ndarray:
        """Times of the validation rows of the split for tuning."""
        return _plain(validation_split, self._pair(dataset_name, pair_id), train_split).times.test

    def evaluate(
        self, dataset_name: str, pair_id: int, prediction: Any, metrics: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Scores by metric, truth read from ``test``; not clipped."""
        data = self._set(dataset_name)
        _plain(data.definition.pair, pair_id)
        if not data.has_truth(pair_id):
            raise FileNotFoundError(f"The truth of {dataset_name}, pair {pair_id} is not in {data.truth_folder}.")
        return self.evaluate_custom(dataset_name, pair_id, _plain(data.truth, pair_id), prediction, metrics)

    def evaluate_custom(
        self, dataset_name: str, pair_id: int, truth: Any, prediction: Any, metrics: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Scores by metric against a truth that is given."""
        d = self._set(dataset_name).definition
        chosen = _plain(d.pair, pair_id).metrics if metrics is None else metrics
        return {m: _plain(scoring.metric_score, m, d, truth, prediction) for m in chosen}

    def extract_metrics_in_order(self, dataset_name: str, batch_results: Mapping[str, Any]) -> list[float]:
        """Values of ``batch_results.yaml`` in the order E1 .. E12."""
        found = {entry["pair_id"]: entry["metrics"] for entry in batch_results["pairs"]}
        values = []
        for spec in sorted(self._set(dataset_name).definition.pairs, key=lambda p: p.id):
            for metric in spec.metrics:
                if metric not in found.get(spec.id, {}):
                    raise ValueError(f"The results lack {metric} of pair {spec.id}.")
                values.append(found[spec.id][metric])
        return values

    def save_results(
        self,
        dataset_name: str,
        method_name: str,
        batch_id: str,
        pair_id: int | str,
        config: Mapping[str, Any],
        predictions: Any,
        results: Mapping[str, float] | None = None,
    ) -> Path:
        """Write configuration, predictions and scores of one pair; returns the folder."""
        import yaml

        folder = self.results / dataset_name / method_name / str(batch_id) / f"pair{pair_id}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        np.save(folder / "predictions.npy", np.asarray(predictions), allow_pickle=False)
        if results is not None:
            text = yaml.safe_dump({key: float(value) for key, value in results.items()})
            (folder / "evaluation_results.yaml").write_text(text, encoding="utf-8")
        return folder

    @contextmanager
    def installed(self) -> Iterator[None]:
        """``ctf4science.data_module`` and ``eval_module`` stand for this object inside; put back afterwards."""
        names = ("ctf4science", "ctf4science.data_module", "ctf4science.eval_module")
        kept = {name: sys.modules.get(name) for name in names}
        package, data, evaluation = (ModuleType(name) for name in names)
        for module, functions in ((data, DATA), (evaluation, EVAL)):
            for function in functions:
                setattr(module, function, getattr(self, function))
        package.__path__ = []
        vars(package).update(data_module=data, eval_module=evaluation)
        sys.modules.update(zip(names, (package, data, evaluation), strict=True))
        try:
            yield
        finally:
            for name, module in kept.items():
                if module is None:
                    sys.modules.pop(name, None)
                else:
                    sys.modules[name] = module


def _turned(matrix: np.ndarray, transpose: bool) -> np.ndarray:
    return np.array(matrix.T if transpose else matrix)


def _plain(call: Any, *arguments: Any) -> Any:
    """``call``, its errors as ValueError."""
    try:
        return call(*arguments)
    except AssayError as error:
        raise ValueError(str(error)) from None

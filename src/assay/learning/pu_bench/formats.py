"""The published settings (YAML) and results (JSON): read, and results written as the first public code writes them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.datasets.readers import read_json, read_yaml, require, shown
from assay.core.errors import DataError
from assay.learning.pu_bench.estimators import CLASSES, estimator_class
from assay.learning.pu_bench.grid import Configuration, configurations

if TYPE_CHECKING:
    import polars as pl

    from assay.core.results import Runs

DATASETS = {
    "mnist": "MNIST", "fashion_mnist": "FashionMNIST", "cifar10": "CIFAR10", "alzheimer_mri": "AlzheimerMRI",
    "imdb": "IMDB", "newsgroups20": "20News", "connect4": "Connect4", "spambase": "Spambase", "mushrooms": "Mushrooms",
}  # fmt: skip
"""Names of the data sets in published files; another data set keeps its own."""
_STRATEGIES = {"scar": "random", "sar_lbe_a": "sar_lbeA", "sar_lbe_b": "sar_lbeB", "sar_pusb_topk": "sar_pusb"}
_READ = {name: ours for ours, name in _STRATEGIES.items()} | {"all": "all"}
_SCENARIOS = {"case_control": "case-control", "single": "single"}
_MODES = {
    "naive": "full_u",
    "naive_mode": "full_u",
    "story_mode": "story",
    "nnpu_full_u": "full_u",
    "story": "story",
    "story_equal_n": "story",
}
_POSITIVE = {"mnist": {0, 2, 4, 6, 8}, "fashion_mnist": {0, 2, 3, 4, 6}, "cifar10": {0, 1, 8, 9}}
_MONITORS = {"val_f1": "f1", "val_proxy_acc": "pa", "val_proxy_auc": "pauc", "val_pauc": "pauc"}

_EVERYWHERE = {
    "lr": "lr", "weight_decay": "weight_decay", "batch_size": "batch_size", "num_epochs": "epochs",
    "optimizer": "optimizer",
}  # fmt: skip
_OF_METHOD: dict[str, dict[str, str]] = {
    "upu": {"loss": "loss"},
    "nnpu": {"loss": "loss", "gamma": "gamma", "beta": "beta"},
    "nnpusb": {"loss": "loss", "gamma": "gamma", "beta": "beta"},
    "vpu": {"mix_alpha": "mixup"},
    "bbepu": {"warmup_epochs": "warmup_epochs", "main_epochs": "epochs", "gamma": "gamma", "beta": "beta",
              "loss_type": "loss"},
    "lbe": {"pretrain_epochs": "pretrain_epochs", "m_steps": "steps", "topk_keep": "kept"},
    "puet": {"n_estimators": "n_estimators", "max_depth": "max_depth", "min_samples_leaf": "min_leaf", "loss": "loss",
             "risk_estimator": "risk"},
    "distpu": {"stages.warm_up.epochs": "warmup_epochs", "stages.warm_up.lr": "lr", "stages.mixup.epochs": "epochs",
               "stages.mixup.lr": "mixup_lr", "weight_decay": "mixup_weight_decay",
               "stages.mixup.co_entropy": "entropy_weight",
               "stages.mixup.co_mix_entropy": "mix_entropy_weight", "stages.mixup.co_mixup": "mixup_weight",
               "stages.mixup.alpha": "alpha"},
    "pulda": {"warm_up_lr": "warmup_lr", "warm_up_weight_decay": "warmup_weight_decay", "tmpr": "temperature",
              "margin": "margin", "warm_up_epochs": "warmup_epochs", "pu_epochs": "epochs", "co_mixup": "mixup_weight",
              "alpha": "alpha", "P_batch_size": "labelled_batch", "U_batch_size": "batch_size"},
    "selfpu": {"self_paced_start": "start", "self_paced_rampup": "ramp", "mean_teacher_start": "consistency_start",
               "ema_decay": "decay", "consistency_weight": "consistency_weight"},
    "robustpu": {"pre_train.epochs": "pretrain_epochs", "pre_train.lr": "pretrain_lr", "main_train.epochs": "epochs",
                 "main_train.inner_epochs": "inner_epochs", "main_train.lr": "lr",
                 "main_train.weight_decay": "weight_decay", "main_train.spl_type": "pacing",
                 "main_train.scheduler_p.grow_steps": "grow_steps", "main_train.moving_ratio": "smoothing"},
    "holisticpu": {"phase1_epochs": "phase1_epochs", "phase2_epochs": "epochs", "lambda_u": "unlabelled_weight",
                   "label_smoothing": "smoothing", "threshold": "confidence"},
    "lagam": {"warmup_epoch": "warmup_epochs", "num_cluster": "clusters", "temperature": "temperature",
              "num_neighbors": "neighbours", "cont_weight": "contrastive_weight"},
    "pulcpbf": {"phase1_epochs": "phase1_epochs", "phase2_epochs": "epochs", "alpha": "alpha",
                "lambda_u": "unlabelled_weight"},
    "pan": {"lr_r": "lr", "lr_d": "judge_lr", "co_pu": "pull", "co_rr": "push"},
    "cgenpu": {"lr_g": "lr", "lr_d": "judge_lr", "lr_a": "classifier_lr", "latent_dim": "noise",
               "aux_strength": "generator_weight", "prior_reg": "prior_weight"},
}  # fmt: skip
for _name in ("p3mixc", "p3mixe"):
    _OF_METHOD[_name] = {
        "val_iterations": "iterations", "ema_decay": "decay", "start_hmix": "start", "h_positive": "pool",
        "p_upper": "boundary", "alpha": "alpha", "mix_layer": "layers", "unlabeled_weight": "unlabelled_weight",
        "entropy_weight": "entropy_weight", "elr_weight": "early_weight",
    }  # fmt: skip
# Says nothing about the method, or is what holds here anyway.
_SILENT = re.compile(
    r"(metadata|label_scheme|seed|verbose|log_interval|silence_metrics_\w+|visualize_trends|num_workers|n_jobs|"
    r"test_batch_size|checkpoint|dataset_class|model)(\..*)?"
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A published data set file: what it asks for, in the words of this room.

    Attributes
    ----------
    seeds
        As published; here attempts stand for them, in this order.
    modes
        Of case-control.
    unused
        Keys of the file that change nothing here.
    """

    dataset: str
    seeds: tuple[int, ...]
    configurations: tuple[Configuration, ...]
    modes: tuple[str, ...]
    clean_share: float
    prevalence: float | None
    unused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MethodSettings:
    """A published method file: name, options of its estimator, how weights are chosen, keys that change nothing."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    selection: str = "last"
    unused: tuple[str, ...] = ()


def read_sweep(path: Path | str, *, accept_reject: bool = False) -> Sweep:
    """A published data set file.

    Parameters
    ----------
    accept_reject
        Read ``sar_pusb`` as the later code does; the paper's takes the highest scores.

    Raises
    ------
    DataError
        Not such a file; a data set, strategy, scenario or mode that is not known; classes other than ours.
    """
    path = Path(path)
    found = _yaml(path)
    key = {_plain(name): ours for ours, name in DATASETS.items()}
    key |= {"adni": "alzheimer_mri", "20newsgroups": "newsgroups20"}
    name = _plain(str(found.get("dataset_class", "")))
    if name not in key:
        raise DataError(
            f"{path}, dataset_class: {found.get('dataset_class')!r} is not known; there are "
            f"{', '.join(DATASETS.values())}."
        )
    dataset = key[name]
    scheme = found.get("label_scheme") or {}
    given = scheme.get("positive_classes") if isinstance(scheme, Mapping) else None
    if given is not None and not (isinstance(given, list) and all(isinstance(label, int | str) for label in given)):
        raise DataError(f"{path}, label_scheme.positive_classes: a list of classes is needed; it is {shown(given)}.")
    if given is not None and dataset in _POSITIVE and set(given) != _POSITIVE[dataset]:
        raise DataError(
            f"{path}, label_scheme.positive_classes: {shown(given)} are not the paper's {sorted(_POSITIVE[dataset])}, "
            "the only ones here."
        )
    strategies = dict(_READ, **({"sar_pusb": "sar_pusb"} if accept_reject else {}))
    scenarios = _several(path, found, "scenarios", {"single": "single", "case-control": "case_control"})
    chosen = _several(path, found, "selection_strategies", strategies)
    modes = _several(path, found, "case_control_modes", _MODES) if "case_control_modes" in found else ["full_u"]
    try:
        frequencies = [float(c) for c in _list(path, found, "c_values")]
        seeds = [int(seed) for seed in _list(path, found, "random_seeds")]
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: c_values and random_seeds must be lists of numbers ({error}).") from error
    if bad := [c for c in frequencies if not 0 < c <= 1]:
        raise DataError(f"{path}, c_values: {bad[0]} does not lie in (0, 1].")
    used = {
        "dataset_class", "random_seeds", "c_values", "scenarios", "selection_strategies", "case_control_modes",
        "val_ratio", "target_prevalence", "label_scheme", "with_replacement",
    }  # fmt: skip
    prevalence, share = (_fraction(path, found, key) for key in ("target_prevalence", "val_ratio"))
    return Sweep(
        dataset, tuple(seeds), tuple(configurations(scenarios, chosen, frequencies)), tuple(dict.fromkeys(modes)),
        share or 0.01, prevalence,
        tuple(sorted(set(found) - used)),
    )  # fmt: skip


def read_method(path: Path | str) -> MethodSettings:
    """A published method file; knobs that this room has no option for stand in ``unused``.

    Raises
    ------
    DataError
        Not such a file, or no method of the paper.
    """
    path = Path(path)
    found = _yaml(path)
    if len(found) != 1 or not isinstance(body := next(iter(found.values())), Mapping):
        raise DataError(f"{path}: a method file has one key, the method's name, with its settings below it.")
    name = str(next(iter(found)))
    if name not in CLASSES:
        raise DataError(f"{path}: {name!r} is no method; there are {', '.join(CLASSES)}.")
    known = _EVERYWHERE | _OF_METHOD.get(name, {})
    has = set(estimator_class(name)._get_param_names())
    options: dict[str, Any] = {}
    unused = []
    for key, value in _flat(body):
        target = known.get(key)
        if target is not None and target in has and value is not None:
            options[target] = value.lower() if isinstance(value, str) else value
        elif target in has or not _SILENT.fullmatch(key):
            unused.append(key)
    checkpoint = _settings(path, body, "checkpoint")
    selection = "last"
    if checkpoint.get("enabled", False):
        monitor = str(checkpoint.get("monitor", "val_f1"))
        if monitor not in _MONITORS:
            raise DataError(f"{path}, checkpoint.monitor: {monitor!r} is not known; there are {', '.join(_MONITORS)}.")
        selection = _MONITORS[monitor]
        early = _settings(path, checkpoint, "early_stopping")
        if early.get("enabled") and "patience" in has:
            options["patience"] = require({"patience": 10, **early}, "patience", int, f"{path}, early_stopping")
    return MethodSettings(name, options, selection, tuple(unused))


def experiment_name(dataset: str, how: Configuration, seed: int) -> str:
    """As published: ``MNIST_case-control_random_c0.1_seed2``."""
    strategy = _STRATEGIES.get(how.strategy, how.strategy)
    return f"{DATASETS.get(dataset, dataset)}_{_SCENARIOS[how.scenario]}_{strategy}_c{how.c:g}_seed{seed}"


def write_results(runs: Runs, out: Path | str, *, seeds: Sequence[int] = ()) -> list[Path]:
    """Results as ``seed_SEED/EXPERIMENT.json``; methods of other calls in a file stay. Failed trials are left out.

    Parameters
    ----------
    seeds
        Published seed of each attempt; default 0, 1, ...
    """
    from assay.core.results import labels

    found: dict[tuple[int, str], dict[str, Any]] = {}
    for run, label in zip(runs, labels(list(runs))):
        for row in run.records.sort("task", "sample", "attempt").iter_rows(named=True):
            if row["status"] != "ok":
                continue
            seed = seeds[row["attempt"]] if row["attempt"] < len(seeds) else row["attempt"]
            name = experiment_name(row["task"], Configuration(row["scenario"], row["strategy"], row["c"]), seed)
            found.setdefault((seed, name), {})[label] = _result(run, label, row)
    written = []
    for (seed, name), methods in sorted(found.items()):
        path = Path(out) / f"seed_{seed}" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = _result_file(path)["runs"] if path.exists() else {}
        last = max(entry["timing"]["end"] for entry in methods.values())
        whole = {"experiment": name, "updated_at": last, "runs": {**kept, **methods}}
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(whole, indent=1), encoding="utf-8")
        os.replace(draft, path)
        written.append(path)
    return written


def read_results(folder: Path | str) -> pl.DataFrame:
    """Published results of a folder, a row an experiment and method.

    Returns
    -------
    polars.DataFrame
        dataset, scenario, strategy, c, seed, method, epoch, seconds, then a column a metric (``test_accuracy`` ...).

    Raises
    ------
    DataError
        No result file, or one that is not in the format.
    """
    import polars as pl

    folder = Path(folder)
    paths = sorted(folder.rglob("*.json"))
    if not paths:
        raise DataError(f"{folder} holds no result file (seed_SEED/EXPERIMENT.json).")
    names = {name: ours for ours, name in DATASETS.items()}
    pattern = re.compile(r"(?P<d>.+)_(?P<v>single|case-control)_(?P<s>.+)_c(?P<c>[\d.e-]+)_seed(?P<n>\d+)")
    rows = []
    for path in paths:
        whole = _result_file(path)
        match = pattern.fullmatch(str(whole.get("experiment")))
        if match is None:
            named = whole.get("experiment")
            raise DataError(f"{path}, experiment: {named!r} is not DATASET_SCENARIO_STRATEGY_cC_seedN.")
        for method, entry in whole["runs"].items():
            where = f"{path}, method {method}"
            if not isinstance(entry, dict):
                raise DataError(f"{where}: a result must be an object, not {shown(entry)}.")
            best, timing = (_settings(path, entry, key) for key in ("best", "timing"))
            for holder, key in ((best, "epoch"), (timing, "duration_seconds")):
                if holder.get(key) is not None:
                    require(holder, key, (int, float), where)
            metrics = {k: float(v) for k, v in _settings(path, best, "metrics").items() if isinstance(v, (int, float))}
            rows.append(
                {"dataset": names.get(match["d"], match["d"]), "scenario": match["v"].replace("-", "_"),
                 "strategy": _READ.get(match["s"], match["s"]), "c": float(match["c"]), "seed": int(match["n"]),
                 "method": method, "epoch": best.get("epoch"), "seconds": timing.get("duration_seconds"), **metrics}
            )  # fmt: skip
    if not rows:
        raise DataError(f"{folder} holds result files without a run in them.")
    return pl.DataFrame(rows, infer_schema_length=None, strict=False).sort(
        "dataset", "scenario", "strategy", "c", "seed", "method"
    )


def _result(run: Any, label: str, row: Mapping[str, Any]) -> dict[str, Any]:
    from datetime import timedelta

    counts = json.loads(row["output"])
    seconds = float(row["fit_seconds"])
    metrics = {"accuracy", "precision", "recall", "f1", "f1_macro", "auc"}
    system = run.info.get("system", label)
    return {
        "method": label,
        "device": "cuda" if "device=cuda" in str(system) else "cpu",
        "timing": {
            "start": row["started"].isoformat(),
            "end": (row["started"] + timedelta(seconds=float(row["seconds"] or 0))).isoformat(),
            "duration_seconds": seconds,
        },
        "max_gpu_memory_bytes": None,
        "dataset": {
            "train": {
                "total": counts["n_total"], "labeled": counts["n_labeled"], "unlabeled": counts["n_unlabeled"],
                "positives_in_unlabeled": counts["n_pos_unlabeled"], "prior_unlabeled": counts["prior_unlabeled"],
            },
            "test": {"total": counts.get("n_test"), "positives": counts.get("n_test_pos")},
        },
        "best": {
            "epoch": None if row.get("best_epoch") is None else int(row["best_epoch"]),
            "metrics": {f"test_{k}": row[k] for k in sorted(metrics) if row.get(k) is not None},
        },
        "monitor": run.info["options"].get("selection", "own"),
        "global_epochs": None,
        "hyperparameters": {"system": system},
    }  # fmt: skip


def _result_file(path: Path) -> dict[str, Any]:
    whole = read_json(path)
    if not isinstance(whole, dict) or not isinstance(whole.get("runs"), dict):
        raise DataError(f"{path} is no result file: it lacks experiment and runs.")
    return whole


def _yaml(path: Path) -> dict[str, Any]:
    found = read_yaml(path, extra="pu_bench")
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no settings: its top level is not a mapping.")
    return found


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _list(path: Path, found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    if not isinstance(value, list) or not value:
        raise DataError(f"{path}, {key}: a list with at least one value is needed; it is {value!r}.")
    return value


def _fraction(path: Path, found: Mapping[str, Any], key: str) -> float | None:
    value = found.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1):
        raise DataError(f"{path}, {key}: {shown(value)} is no number from 0 to 1.")
    return None if value is None else float(value)


def _several(path: Path, found: Mapping[str, Any], key: str, known: Mapping[str, str]) -> list[str]:
    out = []
    for value in _list(path, found, key):
        if not isinstance(value, str) or value not in known:
            raise DataError(f"{path}, {key}: {shown(value)} is not known; there are {', '.join(known)}.")
        out.append(known[value])
    return out


def _settings(path: Path, body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {} if body.get(key) is None else require(body, key, dict, str(path))


def _flat(body: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Settings with dotted names."""
    out: list[tuple[str, Any]] = []
    for key, value in body.items():
        out += _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return out

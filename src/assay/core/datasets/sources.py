"""Where data comes from: a folder, a hashed download, the hub, an installed package, a generator; never remote code."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import urlsplit

from assay.core.cache import cache_folder
from assay.core.datasets.manifest import MANIFEST, file_hash, read_manifest
from assay.core.errors import DataError, MissingExtra, UsageError

Kind = Literal["real", "stand-in", "generated", "published sample"]
_CHUNK = 1 << 18
_TIMEOUT = 60.0
_DATA_PATTERNS = (
    "*.parquet", "*.arrow", "*.jsonl", "*.json", "*.csv", "*.tsv", "*.txt", "*.gz", "*.zip", "*.tar", "*.npz", "*.npy",
    "*.png", "*.jpg", "*.jpeg", "*.wav", "*.flac",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Data:
    """Data and where it is from.

    Attributes
    ----------
    kind
        ``real``, ``stand-in`` (takes the place of real data offline; every table says so), ``generated``, ``published
        sample`` (a part of the real data).
    source
        Address, or a sentence.
    licence
        SPDX name, or the terms in words; empty = not stated.
    fingerprint
        Of the content.
    path
        Folder or file; None = made in memory.
    revision
        Commit of a hub repository.
    """

    kind: Kind
    source: str
    licence: str
    fingerprint: str
    path: Path | None = None
    revision: str | None = None

    def info(self) -> dict[str, Any]:
        """For ``Benchmark.data`` and ``run.json``: without the path, which differs between machines."""
        info: dict[str, Any] = {
            "kind": self.kind,
            "source": self.source,
            "licence": self.licence,
            "fingerprint": self.fingerprint,
        }
        if self.revision:
            info["revision"] = self.revision
        return info


def fingerprint(what: Path | str | Iterable[Path | Mapping[str, Any]]) -> str:
    """Hash of content: of a file, a folder, several of these, or of rows in their order (32 hexadecimal digits).

    Names count relative to the folder given, so moving a folder changes nothing; hidden files do not count.
    """
    import msgspec

    digest = hashlib.blake2b(digest_size=16)
    if isinstance(what, (str, Path)):
        _feed(digest, Path(what))
        return digest.hexdigest()
    for item in what:
        if isinstance(item, Path):
            _feed(digest, item)
        else:
            row = msgspec.json.encode(item, order="deterministic", enc_hook=str)
            digest.update(len(row).to_bytes(8, "little") + row)
    return digest.hexdigest()


def _feed(digest: Any, path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    if path.is_file():
        digest.update(file_hash(path).encode())
        return
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            digest.update(f"{name.as_posix()}\0{file_hash(file)}\n".encode())


def folder(path: Path | str, *, kind: Kind = "real", source: str = "", licence: str = "") -> Data:
    """A folder or file of the user's. One with a manifest speaks for itself.

    Raises
    ------
    DataError
        It does not exist, or holds nothing.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise DataError(f"Data folder {path} does not exist.")
    if path.is_dir() and not any(path.iterdir()):
        raise DataError(f"Data folder {path} is empty.")
    if path.is_dir() and (path / MANIFEST).is_file():
        manifest = read_manifest(path)
        known: Kind = manifest.kind if manifest.kind in ("real", "stand-in", "published sample") else "generated"
        return Data(known, manifest.source, manifest.licence, manifest.fingerprint, path)
    return Data(kind, source or path.name, licence, fingerprint(path), path)


def package_file(package: str, name: str, *, licence: str = "", kind: Kind = "real", extra: str = "") -> Data:
    """A file that an installed package carries; the package is found, not imported.

    Parameters
    ----------
    package
        Top-level name.
    name
        Path inside it.
    extra
        Extra of assay that installs it; without one the message names the package itself.
    """
    spec = importlib.util.find_spec(package.partition(".")[0])
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not roots:
        if extra:
            raise MissingExtra(f"Data file {name!r}", extra)
        raise DataError(f"Data file {name!r} comes with the package {package!r}, which is not installed.")
    for root in roots:
        path = Path(root, *package.split(".")[1:], name)
        if path.is_file():
            return Data(kind, f"package {package}, {name}", licence, fingerprint(path), path)
    raise DataError(f"The installed package {package!r} carries no file {name!r}; another version may.")


def generated(rows: Iterable[Mapping[str, Any]], source: str, licence: str = "Apache-2.0") -> Data:
    """Provenance of data made by assay itself."""
    return Data("generated", source, licence, fingerprint(rows))


def stand_in(data: Data, instead_of: str) -> Data:
    """The same data, labelled as taking the place of what cannot be had here."""
    return Data(
        "stand-in", f"{data.source}, instead of {instead_of}", data.licence, data.fingerprint, data.path, data.revision
    )


def download(
    url: str, sha256: str, *, cache: Path | None = None, name: str | None = None, licence: str = "",
    kind: Kind = "real", token: str | None = None,
) -> Data:  # fmt: skip
    """A file from an address, known by its hash: fetched once, kept in the cache, begun downloads go on.

    Parameters
    ----------
    url
        ``https`` or ``http``: the hash is what is trusted.
    sha256
        Of the file, 64 hexadecimal digits.
    cache
        Folder; default ``downloads`` in assay's cache folder.
    name
        File name; default the last part of the address.
    token
        Of a private mirror; sent to that address alone, not to where it redirects.

    Raises
    ------
    DataError
        It cannot be fetched, and where the file could be put by hand; or what came has another hash.
    """
    wanted = sha256.lower()
    if not re.fullmatch(r"[0-9a-f]{64}", wanted):
        raise UsageError(f"{url}: a download needs its SHA-256, 64 hexadecimal digits, not {sha256!r}.")
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http"):
        raise UsageError(f"{url}: only https and http are fetched; give another file as a folder.")
    name = name or Path(parts.path).name or "data"
    target = (cache or cache_folder() / "downloads") / wanted[:16] / name
    data = Data(kind, url, licence, wanted[:32], target)
    if _is(target, wanted):
        return data
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{name}.part")
    while True:
        with draft.open("ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # a second process waits here, then finds the file
            if _is(target, wanted):
                return data
            if not draft.exists() or not os.path.samestat(os.fstat(stream.fileno()), draft.stat()):
                continue  # the process before threw its draft away
            _fetch(url, stream, target, token)
            stream.flush()
            got = file_hash(draft)
            if got != wanted:
                draft.unlink()
                raise DataError(
                    f"{url} has the SHA-256 {got}, not {wanted}: it was changed or cut; nothing of it is used."
                )
            os.replace(draft, target)
            return data


def _is(path: Path, wanted: str) -> bool:
    return path.is_file() and file_hash(path) == wanted


def _fetch(url: str, stream: IO[bytes], target: Path, token: str | None) -> None:
    """Append what is missing of a file to ``stream``; whole again where the server cannot go on."""
    import http.client
    import urllib.error
    import urllib.request

    begun = stream.seek(0, os.SEEK_END)
    request = urllib.request.Request(url, headers={"User-Agent": "assay", "Accept-Encoding": "identity"})
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    if begun:
        request.add_header("Range", f"bytes={begun}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as reply:
            if begun and not (reply.status == 206 and f"bytes {begun}-" in reply.headers.get("Content-Range", "")):
                stream.truncate(0)
            left = int(reply.headers.get("Content-Length", 0))
            while chunk := reply.read(_CHUNK):
                stream.write(chunk)
                left -= len(chunk)
            if left > 0:  # read() does not tell a connection that was cut from the end
                raise http.client.IncompleteRead(b"", left)
    except urllib.error.HTTPError as error:
        if begun and error.code == 416:  # nothing is missing, or the file is another one now: the hash will tell
            return
        hint = " or give a token that may read it" if error.code in (401, 403) else ""
        raise DataError(
            f"{url} answers {error.code} {error.reason}; put the file at {target} by hand{hint}."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        stream.flush()
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{url} cannot be reached or broke off ({reason}), and {target.name} is not in the cache; go on with a "
            f"network (what has come is kept), or put the file at {target}."
        ) from error


_HUB = re.compile(r"(?:hf:)?(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


def _offline() -> bool:
    return any(os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on") for name in _OFFLINE_VARIABLES)


_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


def hub(name: str, *, files: Sequence[str] = _DATA_PATTERNS, licence: str = "", kind: Kind = "real") -> Data:
    """Data files of a data set on the Hugging Face hub, at one commit; code in the repository is never fetched or run.

    ``HF_HOME``, ``HF_TOKEN``, ``HF_HUB_OFFLINE`` and ``HF_DATASETS_OFFLINE`` are obeyed.

    Parameters
    ----------
    name
        ``hf:org/name`` or ``hf:org/name@revision``; the revision is resolved to a commit, found in ``revision``.
    files
        Patterns of the files to fetch.

    Raises
    ------
    MissingExtra
        huggingface_hub is not installed.
    DataError
        Not there, not allowed (a licence to accept, a token to give), or not in the cache while offline.
    """
    match = _HUB.fullmatch(name)
    if match is None:
        raise UsageError(f"Data set {name!r} is not of the form hf:ORG/NAME or hf:ORG/NAME@REVISION.")
    if code := [pattern for pattern in files if pattern.endswith((".py", ".pkl", ".pickle", ".pt", ".bin"))]:
        raise UsageError(f"{name}: files like {code[0]} may hold code and are not fetched.")
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise MissingExtra(f"Data set {name!r}", "local") from None
    repo, offline = match["repo"], _offline()
    try:
        path = huggingface_hub.snapshot_download(
            repo,
            repo_type="dataset",
            revision=match["revision"],
            allow_patterns=list(files),
            ignore_patterns=["*.py", "*.pkl", "*.pickle"],
            local_files_only=offline,
        )
    except errors.GatedRepoError as error:
        raise DataError(
            f"{name} asks for consent: accept its terms at hf.co/datasets/{repo} and set HF_TOKEN."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise DataError(f"{name}: the data set has no revision {match['revision']!r}.") from error
    except errors.RepositoryNotFoundError as error:
        raise DataError(f"{name} does not exist on the hub, or is private: check the name, or set HF_TOKEN.") from error
    except errors.LocalEntryNotFoundError as error:
        why = f"{' or '.join(_OFFLINE_VARIABLES)} is set" if offline else "the hub cannot be reached"
        raise DataError(f"{name} is not in the local hub cache and {why}; fetch it once with a network.") from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise DataError(f"{name} cannot be fetched: {str(error).splitlines()[0]}.") from error
    root = Path(path)
    if not any(file.is_file() for file in root.rglob("*")):
        raise DataError(f"{name} holds no file like {', '.join(files[:6])}; code is never run to make one.")
    return Data(kind, f"hf:{repo}@{root.name}", licence, fingerprint(root), root, revision=root.name)

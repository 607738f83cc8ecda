"""Where data comes from, how it is read, and which part of it is taken."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.core.datasets.archives import check_zip, unpack
    from assay.core.datasets.manifest import Manifest, read_manifest, write_manifest
    from assay.core.datasets.offline import digits
    from assay.core.datasets.readers import (
        guarded,
        parse_json,
        read_json,
        read_jsonl,
        read_rows,
        read_table,
        read_text,
        read_yaml,
        require,
    )
    from assay.core.datasets.sampling import LIMIT_RULE, limit, limit_rule
    from assay.core.datasets.sources import Data, download, fingerprint, folder, generated, hub, package_file, stand_in

# Imported when asked for: archives, hashes and downloads would cost every start.
_HOMES = {
    "check_zip": "archives",
    "unpack": "archives",
    "Manifest": "manifest",
    "read_manifest": "manifest",
    "write_manifest": "manifest",
    "digits": "offline",
    "guarded": "readers",
    "parse_json": "readers",
    "read_json": "readers",
    "read_jsonl": "readers",
    "read_rows": "readers",
    "read_table": "readers",
    "read_text": "readers",
    "read_yaml": "readers",
    "require": "readers",
    "LIMIT_RULE": "sampling",
    "limit": "sampling",
    "limit_rule": "sampling",
    "Data": "sources",
    "download": "sources",
    "fingerprint": "sources",
    "folder": "sources",
    "generated": "sources",
    "hub": "sources",
    "package_file": "sources",
    "stand_in": "sources",
}

__all__ = [
    "LIMIT_RULE",
    "Data",
    "Manifest",
    "check_zip",
    "digits",
    "download",
    "fingerprint",
    "folder",
    "generated",
    "guarded",
    "hub",
    "limit",
    "limit_rule",
    "package_file",
    "parse_json",
    "read_json",
    "read_jsonl",
    "read_manifest",
    "read_rows",
    "read_table",
    "read_text",
    "read_yaml",
    "require",
    "stand_in",
    "unpack",
    "write_manifest",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value

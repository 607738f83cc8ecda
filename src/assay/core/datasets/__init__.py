"""Where data comes from, how it is read, and which part of it is taken."""

from assay.core.datasets.archives import unpack
from assay.core.datasets.manifest import Manifest, read_manifest, write_manifest
from assay.core.datasets.readers import read_json, read_jsonl, read_table, require
from assay.core.datasets.sampling import LIMIT_RULE, limit, limit_rule
from assay.core.datasets.sources import Data, download, fingerprint, folder, generated, hub, package_file, stand_in

__all__ = [
    "LIMIT_RULE",
    "Data",
    "Manifest",
    "download",
    "fingerprint",
    "folder",
    "generated",
    "hub",
    "limit",
    "limit_rule",
    "package_file",
    "read_json",
    "read_jsonl",
    "read_manifest",
    "read_table",
    "require",
    "stand_in",
    "unpack",
    "write_manifest",
]

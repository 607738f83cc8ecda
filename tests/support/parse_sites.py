"""Where the package turns bytes or text from outside into values, found in its source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import assay

ROOT = Path(assay.__file__).parent
PARSERS = {
    "json.load", "json.loads", "msgspec.json.decode", "yaml.safe_load", "yaml.safe_load_all", "tomllib.load",
    "tomllib.loads", "csv.reader", "csv.DictReader", "np.load", "np.loadtxt", "np.genfromtxt", "np.fromfile",
    "np.frombuffer", "torch.load", "zipfile.ZipFile", "tarfile.open", "gzip.open", "gzip.decompress", "h5py.File",
    "Image.open", "soundfile.read", "soundfile.info", "soundfile.SoundFile", "loadmat", "load_file",
    "pl.read_parquet", "pl.scan_parquet", "pl.read_csv", "pl.scan_csv", "pl.read_ipc", "pl.scan_ipc",
    "pl.read_ipc_stream", "pl.read_ndjson", "pl.scan_ndjson", "pl.read_json", "struct.unpack", "pickle.loads",
    "read_json", "read_jsonl", "read_table", "read_rows", "read_text", "read_bytes", "parse_json",
}  # fmt: skip


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _name(node.value)
        return f"{head}.{node.attr}" if head else f".{node.attr}"
    return ""


def _is_parser(call: ast.Call) -> bool:
    name = _name(call.func)
    return name in PARSERS or name.rpartition(".")[2] in ("read_text", "read_bytes", "readexactly")


def sites(root: Path = ROOT) -> dict[str, str]:
    """Functions that parse: ``module:qualname`` to the calls in them."""
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        for name, call in _calls(ast.parse(path.read_text(encoding="utf-8")), ()):
            found.setdefault(f"{module}:{name}", set()).add(_name(call.func) or call.func.attr)  # type: ignore[union-attr]
    return {name: ", ".join(sorted(calls)) for name, calls in found.items()}


def _calls(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _calls(child, (*inside, child.name))
        else:
            if isinstance(child, ast.Call) and _is_parser(child):
                yield ".".join(inside) or "<module>", child
            yield from _calls(child, inside)


def run_through(act: Callable[[], Any]) -> set[str]:
    """Functions of the package that ran while ``act`` did, as `sites` names them."""
    codes: set[Any] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    prefix = f"{ROOT}/"
    found = set()
    for code in codes:
        if code.co_filename.startswith(prefix):
            module = code.co_filename[len(prefix) : -3].replace("/", ".").removesuffix(".__init__")
            parts = [p for p in code.co_qualname.split(".") if p != "<locals>"]
            while parts and parts[-1].startswith("<"):  # comprehensions and lambdas belong to what holds them
                parts.pop()
            found.add(f"{module}:{'.'.join(parts)}" if parts else f"{module}:<module>")
    return found

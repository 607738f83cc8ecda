"""No call that runs what data say, outside of the places listed here with a reason; a reason no longer needed fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ("pickle", "cPickle", "dill", "shelve", "marshal", "joblib", "cloudpickle", "jsonpickle")
BUILTINS = ("eval", "exec", "compile", "__import__")
XML = ("xml.etree.ElementTree", "xml.dom.minidom", "xml.sax", "lxml", "xmlrpc")
YAML = ("load", "load_all", "unsafe_load", "unsafe_load_all", "full_load", "full_load_all")

PIPES = "between this process and its own workers, over a pipe or a private socket"
OURS = "bytes that this process wrote a moment ago"
INSIDE = "inside the sandbox, which is there to run programs that nobody vouches for"
ALLOWED = {
    "perf/peers/with_inspect.py: eval": "the peer's own function of this name",
    "src/assay/agents/gem/processes.py: pickle": PIPES,
    "src/assay/agents/gem/processes.py: pickle.loads": OURS,
    "src/assay/code/hardtests/codec.py: pickle": "an Unpickler that names no class and calls nothing: texts only",
    "src/assay/core/datasets/readers.py: yaml.load_all": "with a SafeLoader that refuses aliases too",
    "src/assay/core/executors/kept.py: pickle": OURS,
    "src/assay/core/executors/kept.py: pickle.loads": OURS,
    "src/assay/core/executors/local.py: pickle": PIPES,
    "src/assay/core/executors/pool.py: pickle": PIPES,
    "src/assay/core/executors/pool.py: pickle.loads": PIPES,
    "src/assay/core/executors/ray_calls.py: pickle": PIPES,
    "src/assay/core/executors/ray_calls.py: pickle.loads": PIPES,
    "src/assay/core/executors/worker.py: pickle": PIPES,
    "src/assay/core/executors/worker.py: pickle.loads": PIPES,
    "src/assay/core/map.py: pickle": "only asks whether a function can be sent",
    "src/assay/core/testing.py: pickle": "only measures the size of an input",
    "src/assay/sandbox/inside/child.py: __import__": INSIDE,
    "src/assay/sandbox/inside/child.py: exec": INSIDE,
    "src/assay/sandbox/inside/runner.py: compile": INSIDE,
    "src/assay/systems/tools/python_driver.py: compile": INSIDE,
    "src/assay/systems/tools/python_driver.py: eval": INSIDE,
    "src/assay/systems/tools/python_driver.py: exec": INSIDE,
    "src/assay/systems/tools/python_driver.py: pickle.loads": INSIDE,
}
"""File and what it uses."""


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""


def _keyword(call: ast.Call, name: str) -> object:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
    return None


def uses(source: str) -> Iterator[str]:
    """What a source uses of the calls and modules above."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name.partition(".")[0] for a in node.names if a.name.partition(".")[0] in MODULES)
            yield from (a.name for a in node.names if a.name.startswith(XML))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.partition(".")[0] in MODULES:
                yield module
            if module.startswith(XML):
                yield module
        elif isinstance(node, ast.Call):
            yield from _call(node)


def _call(call: ast.Call) -> Iterator[str]:
    name = _dotted(call.func).replace("_pickle.", "pickle.")
    head, _, tail = name.rpartition(".")
    if name in BUILTINS:
        yield name
    if tail in ("loads", "load", "Unpickler") and head.rpartition(".")[2] in MODULES:
        yield name
    if head == "yaml" and tail in YAML:
        yield name
    if name == "torch.load" and _keyword(call, "weights_only") is not True:
        yield "torch.load without weights_only"
    if tail == "load" and head in ("np", "numpy") and _keyword(call, "allow_pickle") is not False:
        yield "np.load without allow_pickle=False"
    if _keyword(call, "shell") is True or name in ("os.system", "os.popen"):
        yield "a shell"
    if tail in ("read_pickle", "from_pickle"):
        yield name
    if tail in ("extractall", "unpack_archive") or (tail == "extract" and "tar" in head):
        yield f"{tail} of an archive"
    if _keyword(call, "trust_remote_code") not in (None, False):
        yield "trust_remote_code"


def found(folders: tuple[str, ...] = ("src/assay", "perf", "scripts")) -> dict[str, str]:
    """File and use, with where it stands first."""
    places: dict[str, str] = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for use in uses(path.read_text(encoding="utf-8")):
                places.setdefault(f"{name}: {use}", name)
    return places


def test_nothing_runs_what_data_say_but_for_a_reason() -> None:
    new = sorted(set(found()) - set(ALLOWED))
    assert not new, "not allowed, or not yet reasoned: " + "; ".join(new)


def test_every_reason_is_needed() -> None:
    stale = sorted(set(ALLOWED) - set(found()))
    assert not stale, f"no longer used: {stale}"


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)", "exec(text)", "import dill", "from joblib import load", "import pickle\npickle.loads(data)",
        "yaml.load(text)", "yaml.full_load(text)", "torch.load(path)", "torch.load(path, weights_only=False)",
        "np.load(path)", "np.load(path, allow_pickle=True)", "os.system(text)", "subprocess.run(text, shell=True)",
        "pd.read_pickle(path)", "archive.extractall(folder)", "import xml.etree.ElementTree as ET",
        "load_dataset(name, trust_remote_code=True)", "shutil.unpack_archive(path)",
    ],
)  # fmt: skip
def test_an_unsafe_call_is_seen(source: str) -> None:
    assert list(uses(source))


@pytest.mark.parametrize(
    "source",
    [
        "ast.literal_eval(text)", "yaml.safe_load(text)", "torch.load(path, weights_only=True)", "module.eval()",
        "np.load(path, allow_pickle=False)", "json.loads(text)", "subprocess.run([a])", "re.compile(text)",
    ],
)  # fmt: skip
def test_a_safe_call_is_not_reported(source: str) -> None:
    assert not list(uses(source))

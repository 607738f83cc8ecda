"""Runs in the sandbox: executes a model's code, shows its errors as an interpreter does, keeps a session's names.

`python.py` sends this file there as text; assay never imports it, and it imports nothing of assay. At the top it
imports only what the sandbox has loaded before it forks: anything else would be loaded anew for every call.
"""

from __future__ import annotations

import ast
import linecache
import sys
import traceback
import types
from typing import Any

NAME = "<python>"
"""File name of the code in tracebacks."""


def run(code: str, state: str | None, keep: bool, echo: bool, imports: str) -> dict[str, Any]:
    """Execute ``imports``, then ``code``; ``state`` is what an earlier call with ``keep`` gave."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sources = _restore(state, main) if state else []
    exec(imports, main.__dict__)
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    found: dict[str, Any] = {}
    try:
        first, last = _halves(code) if echo else (code, None)
        exec(compile(first, NAME, "exec", dont_inherit=True), main.__dict__)
        if last is not None:
            value = eval(compile(last, NAME, "eval", dont_inherit=True), main.__dict__)  # noqa: S307 (in the sandbox)
            if value is not None:
                print(repr(value))
    except SystemExit as error:
        if error.code not in (None, 0):
            found["error"] = f"SystemExit: {error.code}"
    except BaseException as error:
        found["error"] = _explained(error)
        found["undefined"] = isinstance(error, NameError) and "is not defined" in str(error)
    sys.stdout.flush()
    sys.stderr.flush()
    if keep:  # also after an error: what was defined before it stays, as in a notebook
        found["state"], found["lost"] = _kept(imports + code, sources, main)
    return found


def _halves(code: str) -> tuple[Any, Any]:
    """The code without its last line where that is an expression, and that expression."""
    body = ast.parse(code, NAME).body
    last = body[-1] if body else None
    if not isinstance(last, ast.Expr):
        return code, None
    return ast.Module(body[:-1], []), ast.Expression(last.value)


def _explained(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:  # the frames above are ours
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, trace))
    except BaseException:  # its __str__ may raise
        return type(error).__name__


def _definitions(source: str) -> dict[str, set[str]]:
    """Statements that define rather than compute, as text, and the names they give."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return {}
    found: dict[str, set[str]] = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[ast.unparse(node)] = {node.name}
        elif isinstance(node, ast.Import):
            found[ast.unparse(node)] = {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            found[ast.unparse(node)] = set(vars(sys.modules.get(node.module or "", types)))
        elif isinstance(node, ast.ImportFrom):
            found[ast.unparse(node)] = {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            found[ast.unparse(node)] = {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def _kept(code: str, sources: list[str], main: types.ModuleType) -> tuple[str, list[str]]:
    """Definitions as source, values as pickles, and the names that are neither."""
    import _pickle  # pickle itself would cost more to load than all the rest of a call
    import binascii

    latest: dict[str, str] = {}
    for source in [*sources, code]:
        for text, names in _definitions(source).items():
            for name in names:  # taken out first, so that the order is that of the last definitions
                latest.pop(name, None)
                latest[name] = text
    sources, defined = list(dict.fromkeys(latest.values())), set(latest)
    values, lost = {}, []
    for key, value in list(main.__dict__.items()):
        by_source = key in defined and isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
        if key.startswith("__") or isinstance(value, types.ModuleType) or by_source:
            continue
        try:
            values[key] = _pickle.dumps(value)
        except BaseException:
            if key not in defined:
                lost.append(key)
    return binascii.b2a_base64(_pickle.dumps((sources, values))).decode(), lost


def _restore(state: str, main: types.ModuleType) -> list[str]:
    """Read, inside the sandbox, what an earlier program of the session wrote: it can do no more than that one did."""
    import _pickle
    import binascii

    sources, values = _pickle.loads(binascii.a2b_base64(state))
    # Classes must be there before their instances, and values before a default argument that names one.
    failed = [source for source in sources if not _executed(source, main)]
    for key, data in values.items():
        try:
            main.__dict__[key] = _pickle.loads(data)
        except BaseException:  # its class is gone: so is the value
            continue
    for source in failed:
        _executed(source, main)
    return sources


def _executed(source: str, main: types.ModuleType) -> bool:
    try:
        exec(compile(source, "<session>", "exec"), main.__dict__)
    except BaseException:
        return False
    return True

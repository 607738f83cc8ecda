"""Systems by name: ``NAME:REST?key=value`` to objects, and objects to facts for ``run.json``."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from assay.core.errors import AssayError, UsageError, secrets, unknown_name

if TYPE_CHECKING:
    from assay.core.benchmark import Benchmark

# Stricter than what is taken out of messages: models are called sk-something too, keys hold long runs with digits.
_KEY_TYPED = re.compile(r"(?<![A-Za-z0-9])(?:sk-|AIza|gsk_|xai-|hf_)(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}")
PREFIXES: Mapping[str, str] = {
    "local": "local:smollm2, a model inside an installed package",
    "hf": "hf:ORG/NAME or hf:FOLDER, a Hugging Face model on this machine",
    "human": "human:NAME, a person at a web page, or human: for a panel of whoever comes",
    "submission": "submission:PATH, a file of predictions or a run folder",
    "method": "method:NAME, a method that the benchmark brings along",
    "python": "python:package.module:attribute, an object of your own",
}
"""What may stand before the colon, beside the providers of ``providers.toml``."""

_VENDORS = {
    "OpenAI": "openai",
    "Anthropic": "anthropic",
    "Google": "gemini",
    "Mistral AI": "mistral",
    "DeepSeek": "deepseek",
    "xAI": "xai",
}
_NOT_OPTIONS = {"role", "base_url", "connections", "clock"}
_FACTORIES = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


class SystemName(NamedTuple):
    """Parts of a system's name.

    ``place`` is what follows ``@``: a base URL at a provider, a revision of a model's weights; None = nothing.
    """

    prefix: str
    rest: str
    place: str | None
    options: dict[str, str]


def parse(name: str) -> SystemName:
    """Take a name apart: ``vllm:org/model@http://host:8000/v1?temperature=0``.

    Raises
    ------
    UsageError
        No prefix or an unknown one, an empty rest, an option without ``=`` or given twice.
    """
    from assay.systems.chat.providers import providers

    if _KEY_TYPED.search(name) or any(v in name for v in secrets()):
        raise UsageError(
            "The name of a system holds what looks like a key, which a run would keep; keys go into variables such as "
            "OPENAI_API_KEY."
        )
    head, _, query = name.partition("?")
    prefix, colon, rest = head.partition(":")
    known = {**PREFIXES, **providers()}
    if not colon:
        raise _no_prefix(name, prefix)
    if prefix not in known:
        raise unknown_name("kind of system", prefix, known, hint=f"(in {name.partition('?')[0]!r})")
    if not rest and prefix != "human":
        raise UsageError(f"{name!r} ends where a name should follow; write, say, {_example(prefix)}.")
    place = None
    if prefix in providers() or prefix == "human":
        # Only an address: "@" is part of some models' names (claude-3-5-sonnet@20240620).
        for scheme in ("@http://", "@https://"):
            model, at, address = rest.partition(scheme)
            if at:
                rest, place = model, scheme[1:] + address
    elif prefix in ("hf", "local"):
        rest, at, revision = rest.partition("@")
        place = revision if at else None
    options: dict[str, str] = {}
    for part in query.split("&") if query else ():
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise UsageError(f"An option of {head!r} is not of the form key=value; write {head}?key=value&key=value.")
        if key in options:
            raise UsageError(f"Option {key!r} of {head!r} is given twice; keep one.")
        options[key] = unquote(value)
    return SystemName(prefix, rest, place, options)


def load(name: str, *, benchmark: Benchmark | str | None = None, role: str = "subject") -> Any:
    """The system called ``name``.

    Parameters
    ----------
    name
        ``PREFIX:REST?key=value&...``: a provider (``openai:gpt-4o``, ``vllm:MODEL@URL``), ``local:``, ``hf:``,
        ``human:``, ``submission:``, ``method:`` or ``python:``.
    benchmark
        Where ``method:`` looks.
    role
        What its model calls are metered as: ``subject``, ``judge``, ``opponent`` ...

    Raises
    ------
    UsageError
        Unknown prefix, name or option (with the nearest right one), or a value of the wrong type.
    MissingExtra
        The packages for ``local:`` and ``hf:`` are not installed.
    """
    parts = parse(name)
    prefix, rest, place, options = parts
    if prefix == "human":
        from assay.systems.human import load_human

        return load_human(rest, place, role=role, **typed(load_human, options, name, skip=2))
    if prefix == "submission":
        from assay.systems.submission import Submission

        _no_options(name, options)
        return Submission(Path(rest))
    if prefix == "method":
        return _method(name, rest, options, benchmark, role)
    if prefix == "python":
        return _python(name, rest, options, role)
    if prefix in ("local", "hf"):
        from assay.systems import lm

        if prefix == "hf":
            return lm.load_hf(rest, place, role=role, **typed(lm.load_hf, options, name, skip=2))
        if place is not None:
            raise UsageError(f"{name}: a local model has no revisions; write local:{rest}.")
        return lm.load_local(rest, role=role, **typed(lm.load_local, options, name, skip=1))
    from assay.systems.chat.client import ChatClient

    return ChatClient(prefix, rest, base_url=place, role=role, **typed(ChatClient, options, name, skip=2))


def describe(system: Any) -> dict[str, Any]:
    """Facts of a system, or of one called so, for ``run.json`` and tables. Never a key.

    Returns
    -------
    dict
        ``name`` and ``kind`` always; provider, model, address, options, price, family, release date, parameters where
        they are known.
    """
    from assay.systems.chat.facts import facts

    if isinstance(system, str):
        return _describe_name(system)
    own = getattr(system, "describe", None)
    if callable(own) and not isinstance(system, type):
        found: dict[str, Any] = own()  # type: ignore[assignment]
        return {**facts(found.get("model") or found["name"]), **found}
    cls = system if isinstance(system, type) else type(system)
    label = f"python:{cls.__module__}:{cls.__qualname__}"
    name = getattr(system, "name", None)
    return {"name": name if isinstance(name, str) else label, "kind": "python", "class": label, "repr": _short(system)}


def _describe_name(name: str) -> dict[str, Any]:
    from assay.systems.chat.facts import facts
    from assay.systems.chat.providers import providers

    parts = parse(name)
    if parts.prefix in providers():
        from assay.systems.chat.client import ChatClient, describe_chat

        return {
            "name": name,
            **describe_chat(parts.prefix, parts.rest, parts.place, typed(ChatClient, parts.options, name, skip=2)),
        }
    if parts.prefix == "submission":
        return load(name).describe()
    found: dict[str, Any] = {"name": name, "kind": parts.prefix}
    if parts.prefix in ("local", "hf"):
        found |= {"model": parts.rest, **facts(parts.rest)}
    if parts.place is not None:
        found["revision"] = parts.place
    if parts.options:
        found["options"] = dict(parts.options)
    return found


def typed(
    fn: Callable[..., Any], options: Mapping[str, str], name: str, *, skip: int = 0, hidden: Sequence[str] = ()
) -> dict[str, Any]:
    """Options of a name as the types of a factory's signature: annotation first, else the default's type.

    Raises
    ------
    UsageError
        An option the factory does not have (with the nearest it has), or a value of the wrong type.
    """
    from assay.core.registry import convert, signature_options, type_hints

    known = {k: p for k, p in signature_options(fn, skip).items() if k not in _NOT_OPTIONS and k not in hidden}
    hints = type_hints(fn)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in _parameters(fn))
    what = repr(name.partition("?")[0])
    found = {}
    for key, value in options.items():
        if key in known:
            hint = hints.get(key, inspect.Parameter.empty)
            if hint is inspect.Parameter.empty:
                default = known[key].default
                hint = type(default) if isinstance(default, (bool, int, float, str)) else Any
            found[key] = convert(value, hint, f"option {key!r} of {what}")
        elif takes_any and key not in _NOT_OPTIONS:
            kind = bool if value.lower() in ("true", "false") else int | float | str
            found[key] = convert(value, kind, f"option {key!r} of {what}")
        else:
            raise unknown_name(f"option of {what}", key, known)
    return found


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []


def _method(name: str, rest: str, options: dict[str, str], benchmark: Benchmark | str | None, role: str) -> Any:
    if benchmark is None:
        raise UsageError(f"{name}: a method belongs to a benchmark, and none was named.")
    if isinstance(benchmark, str):
        from assay.core.registry import load_benchmark

        benchmark = load_benchmark(benchmark)
    methods = benchmark.methods()
    if rest not in methods:
        raise unknown_name(f"method of {benchmark.name!r}", rest, methods)
    return _call(methods[rest], options, name, role)


def _python(name: str, rest: str, options: dict[str, str], role: str) -> Any:
    module_name, colon, attribute = rest.partition(":")
    if not colon or not attribute or not module_name:
        raise UsageError(f"{name!r} is not of the form python:package.module:attribute.")
    found: Any = _import(module_name, name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [a for a in dir(found) if not a.startswith("_")]
            raise unknown_name(f"attribute of {getattr(found, '__name__', module_name)}", part, public)
        found = getattr(found, part)
    if isinstance(found, _FACTORIES):
        return _call(found, options, name, role)
    _no_options(name, options)
    return found


def _import(module: str, name: str) -> types.ModuleType:
    top = module.partition(".")[0]
    here = str(Path.cwd())
    local = Path(here, top).is_dir() or Path(here, f"{top}.py").is_file()
    # A console script does not look into the working folder; whoever names a module there means it.
    if local and here not in sys.path and importlib.util.find_spec(top) is None:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise UsageError(f"{name}: there is no module {module!r} on the Python path or in {here}.") from None
        raise UsageError(f"{name}: importing {module} needs the module {error.name!r}, which is missing.") from error
    except Exception as error:
        raise UsageError(f"{name}: importing {module} failed ({type(error).__name__}: {error}).") from error


def _call(factory: Any, options: dict[str, str], name: str, role: str) -> Any:
    arguments = typed(factory, options, name)
    if any(p.name == "role" for p in _parameters(factory)):
        arguments["role"] = role
    missing = [
        p.name
        for p in _parameters(factory)
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in arguments
    ]
    if missing:
        given = name.partition("?")[0]
        raise UsageError(f"{given!r} needs the option {missing[0]!r}; write {given}?{missing[0]}=...")
    try:
        return factory(**arguments)
    except AssayError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: its factory refuses the options ({error}).") from error


def _no_options(name: str, options: Mapping[str, str]) -> None:
    if options:
        raise UsageError(f"{name.partition('?')[0]!r} takes no options, and {sorted(options)[0]!r} was given.")


def _no_prefix(name: str, model: str) -> UsageError:
    from assay.systems.chat.facts import facts

    vendor = _VENDORS.get(facts(model).get("vendor", ""))
    if vendor:
        return UsageError(f"{name!r} does not say where the model is asked; did you mean {vendor}:{name}?")
    if Path(model).exists():
        return UsageError(f"{name!r} has no prefix; did you mean submission:{name}?")
    if "/" in model:
        return UsageError(f"{name!r} has no prefix; did you mean hf:{name} or openrouter:{name}?")
    return unknown_name("kind of system", model, PREFIXES, hint="Names look like openai:MODEL or local:smollm2.")


def _example(prefix: str) -> str:
    return PREFIXES.get(prefix, f"{prefix}:MODEL").partition(",")[0]


def _short(value: object) -> str:
    from assay.systems.chat.engine import scrub

    return scrub(repr(value), limit=500)

"""Environments by id: register, make, list."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from assay.agents.gem.catalogue import fill
from assay.agents.gem.env import Env, EnvError
from assay.core.errors import AssayError, MissingExtra, unknown_name

Entry = str | Callable[..., Env]


class UnknownEnv(EnvError):
    """There is no environment of that id."""


class EnvImportError(AssayError, ImportError):
    """The code of an environment cannot be imported; the cause is chained."""


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """An id, what makes the environment (``"module:Class"`` or a callable), and its arguments."""

    id: str
    entry_point: Entry
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """What stands before the colon."""
        return self.id.partition(":")[0]


class Registry:
    """Environments by id.

    A *family* is a prefix whose ids are not known before a library is asked (``rg:`` and the sets of the installed
    reasoning-gym): it is asked only when one of its ids is made or all are listed.
    """

    def __init__(self) -> None:
        self._specs: dict[str, EnvSpec] = {}
        self._families: dict[str, Callable[[], Iterable[EnvSpec]]] = {}

    def register(self, env_id: str, entry_point: Entry, **kwargs: Any) -> None:
        """Add an environment; ``kwargs`` are handed to the entry point by `make`.

        Raises
        ------
        EnvError
            The id is taken, or not of the form ``family:Name``.
        """
        if not isinstance(env_id, str) or not all(env_id.partition(":")[::2]):
            raise EnvError(f"Environment id {env_id!r} is not of the form family:Name-version-level.")
        if env_id in self._specs:
            raise EnvError(f"Environment {env_id!r} is registered already; choose another id.")
        self._specs[env_id] = EnvSpec(env_id, entry_point, kwargs)

    def register_family(self, family: str, specs: Callable[[], Iterable[EnvSpec]]) -> None:
        """Add a family whose ids ``specs()`` lists when asked."""
        if family in self._families:
            raise EnvError(f"Family {family!r} is registered already.")
        self._families[family] = specs

    def spec(self, env_id: str) -> EnvSpec:
        """The specification of an id.

        Raises
        ------
        UnknownEnv
            There is none; the message names the nearest ids.
        """
        if env_id in self._specs:
            return self._specs[env_id]
        family = str(env_id).partition(":")[0]
        known = list(self._specs)
        if family in self._families:
            found = {spec.id: spec for spec in self._families[family]()}
            if env_id in found:
                return found[env_id]
            known = list(found)
        # Levels of the very name first: nobody who wrote -v0 wants another game.
        levels = [name for name in known if name.startswith(f"{env_id}-")]
        if levels:
            names = [repr(name) for name in levels]
            listed = ", ".join(names[:-1]) + (" or " if len(names) > 1 else "") + names[-1]
            raise UnknownEnv(f"There is no environment {env_id!r}; did you mean {listed}?")
        raise UnknownEnv(str(unknown_name("environment", str(env_id), known, "print_envs() lists all.")))

    def make(self, env_id: str, **overrides: Any) -> Env:
        """The environment of that id.

        Parameters
        ----------
        overrides
            Arguments that replace or join the registered ones.

        Raises
        ------
        UnknownEnv
            There is no such id.
        EnvImportError
            Its code cannot be imported.
        EnvError
            It takes no such argument.
        """
        spec = self.spec(env_id)
        factory = _load(spec)
        arguments = {**copy.deepcopy(dict(spec.kwargs)), **overrides}
        try:
            env = factory(**arguments)
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise EnvError(f"Environment {env_id!r} cannot be made with {sorted(arguments)}: {error}.") from error
        env.spec = EnvSpec(spec.id, spec.entry_point, arguments)
        return env

    def ids(self, family: str | None = None) -> list[str]:
        """All ids, or those of a family; libraries that are not installed bring none."""
        names = list(self._specs)
        for prefix, specs in self._families.items():
            if family in (None, prefix):
                try:
                    names += [spec.id for spec in specs()]
                except MissingExtra:
                    continue
        return [name for name in names if family is None or name.partition(":")[0] == family]

    def print_envs(self) -> None:
        """Print all ids, a family a paragraph."""
        families: dict[str, list[str]] = {}
        for name in self.ids():
            families.setdefault(name.partition(":")[0], []).append(name)
        for family, names in families.items():
            print(f"{family} ({len(names)})")
            for name in names:
                print(f"  {name}")


def _load(spec: EnvSpec) -> Callable[..., Env]:
    if callable(spec.entry_point):
        return spec.entry_point
    module, _, attribute = spec.entry_point.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise EnvImportError(
            f"Environment {spec.id!r} comes from {spec.entry_point!r}, which cannot be imported ({error}); "
            "install its package or correct the entry point."
        ) from error


REGISTRY = fill(Registry())
"""The registry behind `make`; other packages add to it with `register`."""


def register(env_id: str, entry_point: Entry, **kwargs: Any) -> None:
    """Add an environment to `REGISTRY`; see `Registry.register`."""
    REGISTRY.register(env_id, entry_point, **kwargs)


def make(env_id: str, **overrides: Any) -> Env:
    """The environment of that id; see `Registry.make`."""
    return REGISTRY.make(env_id, **overrides)


def print_envs() -> None:
    """Print all ids of `REGISTRY`, a family a paragraph."""
    REGISTRY.print_envs()

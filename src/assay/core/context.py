"""Context: what a trial is handed besides system and sample."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.store import safe_name

if TYPE_CHECKING:
    import numpy as np

    from assay.core.cache import ContentCache

Report = Callable[..., None]
Compute = Callable[..., Awaitable[Any]]


class Context:
    """Seed, files, cache and helpers of one trial (or of one batch).

    Attributes
    ----------
    seed : int
        In [0, 2**63); a function of run seed, task, sample id and attempt alone.
    attempt : int
        Repetition or seed index, from 0.
    deadline : float | None
        When the trial is killed, on the clock of ``time.monotonic()``; None = no limit.
    state
        What ``Task.setup`` yielded.
    """

    __slots__ = (
        "_cache_folder",
        "_compute",
        "_name",
        "_report",
        "_rng",
        "attempt",
        "deadline",
        "run_folder",
        "seed",
        "state",
    )

    def __init__(
        self,
        *,
        seed: int,
        attempt: int,
        name: tuple[str, str],
        run_folder: Path,
        cache_folder: Path,
        deadline: float | None = None,
        state: Any = None,
        report: Report | None = None,
        compute: Compute | None = None,
    ) -> None:
        self.seed = seed
        self.attempt = attempt
        self.deadline = deadline
        self.state = state
        self.run_folder = run_folder
        self._cache_folder = cache_folder
        self._name = name
        self._rng: np.random.Generator | None = None
        self._report = report
        self._compute = compute

    @property
    def rng(self) -> np.random.Generator:
        """Generator of this trial, made from its seed on first use."""
        if self._rng is None:
            import numpy as np

            self._rng = np.random.default_rng(self.seed)
        return self._rng

    @property
    def artifacts(self) -> Path:
        """Folder for files that belong to the record; its contents are hashed into it."""
        return self._folder("artifacts")

    @property
    def scratch(self) -> Path:
        """Folder that outlives a kill (checkpoints) and is removed once the record is written."""
        return self._folder("scratch")

    @property
    def cache(self) -> ContentCache:
        """Content cache shared by all runs: ``ctx.cache.get_or(key_parts, compute)``."""
        from assay.core.cache import ContentCache

        return ContentCache(self._cache_folder)

    def progress(self, done: float, total: float | None = None, **shown: Any) -> None:
        """Tell how far a long trial is; shown beside the run's progress."""
        if self._report is not None:
            self._report(self._name, done, total, shown)

    async def compute(self, fn: Callable[..., Any], *args: Any, timeout: float | None = None) -> Any:
        """Call ``fn(*args)`` in a worker process.

        Parameters
        ----------
        fn
            A module-level function; arguments and result must pickle.
        timeout
            Seconds after which the worker is killed and replaced.

        Raises
        ------
        TrialTimeout
            ``fn`` ran past ``timeout``.
        WorkerLost
            The process died under ``fn``.
        """
        if self._compute is None:
            raise RuntimeError("ctx.compute is for async trials; a `def` trial runs in a worker process already")
        return await self._compute(fn, *args, timeout=timeout)

    # -- engine side -----------------------------------------------------------------------------------------------

    def path_of(self, kind: str) -> Path:
        """Where artifacts or scratch of this trial lie, made or not."""
        task, unit = self._name
        return self.run_folder / kind / safe_name(task) / unit

    def _folder(self, kind: str) -> Path:
        path = self.path_of(kind)
        path.mkdir(parents=True, exist_ok=True)
        return path

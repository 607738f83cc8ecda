"""Connecting to Ray, and calls of functions on a cluster."""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

from assay.core.errors import MissingExtra, UsageError, WorkerLost
from assay.core.executors.pool import THREAD_VARIABLES

LOSSES = 3
"""How often a call whose process or node was lost is made again."""
FORWARDED = ("_API_KEY", "_BASE_URL", "_API_BASE")


def connect(address: str | None, workers: int | None) -> tuple[Any, bool]:
    """The ray module, connected, and whether this call connected it.

    Raises
    ------
    MissingExtra, UsageError
        Ray is not installed; nobody answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtra("The Ray executor", "ray") from None
    if ray.is_initialized():
        return ray, False
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    if target.startswith("ray://"):
        raise UsageError(
            f"{target} is an address for Ray Client; run assay on a node of the cluster and give HOST:PORT of its "
            "head, or auto."
        )
    own: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False} if target == "local" else {}
    try:
        ray.init(target, log_to_driver=False, logging_level=logging.ERROR, **own)
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"No Ray cluster takes us at {target} ({type(error).__name__}: {text}); start one with `ray start --head`, "
            "and see that RAY_AUTH_TOKEN_PATH names its token."
        ) from error
    return ray, True


def environment() -> dict[str, str]:
    """What agents need of this process's environment: keys and addresses of providers, caches, threads a worker."""
    chosen = {k: v for k, v in os.environ.items() if k.endswith(FORWARDED) or k.startswith(("ASSAY_", "HF_"))}
    return chosen | {name: os.environ.get(name, "1") for name in THREAD_VARIABLES}


class RayCalls:
    """Calls of importable functions on a cluster, for maps.

    Parameters
    ----------
    address
        See `RayExecutor`.
    workers
        Calls at a time; None = one a core of the cluster.
    """

    def __init__(self, address: str | None, workers: int | None) -> None:
        self._ray, self._ours = connect(address, workers)
        self.width = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        options = {"num_cpus": 1, "max_retries": LOSSES, "scheduling_strategy": "SPREAD"}
        self._call = self._ray.remote(call_in_task).options(**options)

    async def call(self, fn: Callable[..., Any], item: Any) -> Any:
        """``fn(item)`` on some node, again elsewhere when the node or the process is lost."""
        from ray.exceptions import RayTaskError, WorkerCrashedError

        message = pickle.dumps((fn, item))
        try:
            return await self._call.remote(message, environment(), tuple(p for p in sys.path if p))
        except RayTaskError as error:
            raise error.cause from None
        except WorkerCrashedError as error:
            raise WorkerLost(f"The process died under it, {1 + LOSSES} times.") from error

    def close(self) -> None:
        """Leave the cluster."""
        if self._ours:
            self._ray.shutdown()


def call_in_task(message: bytes, environment: Mapping[str, str], path: tuple[str, ...]) -> Any:
    """Unpickle and call, where imports find what the driver finds."""
    os.environ.update(environment)
    sys.path.extend(p for p in path if p not in sys.path)
    fn, item = pickle.loads(message)  # noqa: S301
    return fn(item)

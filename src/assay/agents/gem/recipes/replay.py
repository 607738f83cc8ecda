"""Play an episode again, from a recorded trace or from (environment, seed, actions), and write what was seen."""

from __future__ import annotations

import json
from pathlib import Path

from assay.agents.gem.episodes import built
from assay.core.datasets.readers import read_json
from assay.core.errors import DataError, UsageError
from assay.systems.environment import text_of
from assay.systems.trace import Trace


def replay(
    out: Path,
    *,
    env: str,
    trace: Path | None = None,
    seed: int | None = None,
    actions: Path | None = None,
) -> None:
    """Writes ``steps.jsonl`` (observation, board, action, reward, flags) and ``episode.md``.

    Parameters
    ----------
    env
        Id, with settings if it had some.
    trace
        ``episode.json`` of a run; its rewards and flags are checked. For episodes without tool calls.
    seed, actions
        Instead of a trace: the seed, and a JSON list of actions.

    Raises
    ------
    DataError
        The replay differs from the trace, or the file holds no list of texts.
    """
    if (trace is None) == (actions is None):
        raise UsageError("replay needs either trace= or actions= with seed=.")
    if trace is not None:
        recorded = Trace.load(trace)
        if any((step.info or {}).get("use_tool") for step in recorded.steps):
            raise UsageError(f"{trace} holds tool calls; their results are in it, and a replay would run them again.")
        begun, said = recorded.info.get("seed"), recorded.actions
        expected = [
            (step.reward, step.terminated, step.truncated) for step in recorded.steps if step.kind == "environment"
        ]
    else:
        assert actions is not None
        begun, said, expected = seed, _actions(actions), None
        if begun is None:
            raise UsageError("replay of actions= needs the seed= of the episode.")
    rows = []
    with built(env) as made:
        observation, info = made.reset(begun)
        rows.append({"observation": text_of(observation), "board": info.get("suffix", "")})
        for at, action in enumerate(said):
            observation, reward, terminated, truncated, info = made.step(action)
            if expected is not None and (reward, terminated, truncated) != expected[at]:
                raise DataError(
                    f"Replay differs at step {at}: {(reward, terminated, truncated)}, recorded was {expected[at]}; "
                    f"the trace is of another environment than {env!r}, or of other settings."
                )
            rows.append(
                {
                    "action": action, "observation": text_of(observation), "board": info.get("suffix", ""),
                    "reward": reward, "terminated": terminated, "truncated": truncated,
                }
            )  # fmt: skip
            if (terminated or truncated) and at + 1 < len(said):
                raise DataError(f"The episode ends at action {at}, and {len(said) - at - 1} more follow.")
    (out / "steps.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    lines = [f"# {env}, seed {begun}", ""]
    for row in rows:
        if "action" in row:
            lines += [f"**{row['action']}** ({row['reward']:+g})", ""]
        lines += ["```", f"{row['observation']}\n{row['board']}".strip(), "```", ""]
    (out / "episode.md").write_text("\n".join(lines), encoding="utf-8")


def _actions(path: Path) -> list[str]:
    found = read_json(path)
    if not isinstance(found, list) or not all(isinstance(action, str) for action in found):
        raise DataError(f"{path} must hold a JSON list of texts, one an action.")
    return found

"""Episode logs: written a line a step in the published form, replayed exactly, shown as GIF, MP4 or one HTML page."""

from __future__ import annotations

import base64
import html
import io
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.agents.lmgame.env import GameEnv, make
from assay.core.datasets.readers import parse_json, read_text, shown
from assay.core.errors import DataError, MissingExtra, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FIELDS = ("step", "agent_action", "reward")


def start_line(env: GameEnv, episode_id: int = 1) -> dict[str, Any]:
    """The line of step 0: what is played, and the whole state after the reset."""
    return {
        "episode_id": episode_id,
        "step": 0,
        "game": env.name,
        "observation_mode": env.observation_mode,
        "max_steps": env.max_steps,
        "state": env.get_state(),
    }


def step_line(
    env: GameEnv,
    action: str,
    result: tuple[Any, float, bool, bool, dict[str, Any]],
    *,
    episode_id: int = 1,
    thought: str = "",
    time_taken_s: float = 0.0,
    img_path: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The line of a step in the published form; what ``more`` holds (reflection, perception) stands behind it."""
    observation, reward, terminated, truncated, info = result
    text = observation if isinstance(observation, str) else observation["text"]
    return {
        "episode_id": episode_id,
        "step": env.steps,
        "agent_action": action,
        "thought": thought,
        "reward": reward,
        "perf_score": info["perf_score"],
        "info": info,
        "agent_observation": {"img_path": img_path, "textual_representation": text or None},
        "terminated": terminated,
        "truncated": truncated,
        "time_taken_s": time_taken_s,
        **{name: value for name, value in more.items() if value is not None},
    }


class EpisodeLog:
    """Writes ``episode_001_log.jsonl``: the published fields a step, after a line for the start.

    The first line (step 0) holds the game and its whole state, so that `frames` needs nothing else. The file is new:
    an existing one is an error, never appended to.

    Parameters
    ----------
    path : path
        File to write; its folder is made.
    env : GameEnv
        The environment after its reset.
    """

    def __init__(self, path: str | Path, env: GameEnv, episode_id: int = 1) -> None:
        self.path, self.env, self.episode_id = Path(path), env, episode_id
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = self.path.open("x", encoding="utf-8")
        except FileExistsError as error:
            raise UsageError(f"The log {path} exists; write to a new file or remove it first.") from error
        self._write(start_line(env, episode_id))

    def _write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()

    def step(
        self,
        action: str,
        result: tuple[Any, float, bool, bool, dict[str, Any]],
        *,
        thought: str = "",
        time_taken_s: float = 0.0,
        img_path: str | None = None,
    ) -> None:
        """Write what ``env.step(action)`` returned."""
        line = step_line(
            self.env,
            action,
            result,
            episode_id=self.episode_id,
            thought=thought,
            time_taken_s=time_taken_s,
            img_path=img_path,
        )
        self._write(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> EpisodeLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Episode:
    """A log that was read: what stood in its first line (empty for logs of other programs), and its steps."""

    path: Path
    start: Mapping[str, Any]
    steps: list[Mapping[str, Any]] = field(default_factory=list)


def read_log(path: str | Path) -> Episode:
    """Read an episode log.

    Raises
    ------
    DataError
        No such file, a line that is no JSON object, a step without its fields, or no step.
    """
    path = Path(path)
    lines = read_text(path).splitlines()
    start: Mapping[str, Any] = {}
    steps: list[Mapping[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = parse_json(line, f"{path}, line {number}")
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: {shown(row)} is no object of a step.")
        if "state" in row and row.get("step") == 0:
            start = row
            continue
        missing = [name for name in _FIELDS if name not in row]
        if missing:
            raise DataError(f"{path}, line {number}: no field {missing[0]!r}; a step has {', '.join(_FIELDS)}.")
        if steps and row.get("episode_id") != steps[0].get("episode_id"):
            raise DataError(f"{path}, line {number}: episode {row.get('episode_id')!r} in a log of another; part them.")
        steps.append(row)
    if not steps:
        raise DataError(f"{path}: no step in the log.")
    return Episode(path, start, steps)


@dataclass(frozen=True)
class Frame:
    """A moment of an episode: picture, what was done, and what came of it."""

    image: NDArray[np.uint8]
    action: str
    thought: str
    reward: float
    score: float


def replayed(
    log: Episode | str | Path, *, game: str | None = None, seed: int | None = None, **options: Any
) -> Iterator[tuple[GameEnv, Mapping[str, Any]]]:
    """Play a log again: the environment and the log's row, at the start (an empty row) and after every step.

    Parameters
    ----------
    game, seed, **options
        For logs without a first line of assay: the game, its seed and the engine's options.

    Raises
    ------
    UsageError
        The log does not say what was played, and neither does the call.
    DataError
        A step brings another reward than the log says: another game, seed, option or version.
    """
    episode = log if isinstance(log, Episode) else read_log(log)
    name = game or episode.start.get("game")
    if name is None or (not episode.start and seed is None):
        raise UsageError(f"{episode.path} does not say what was played; give game=... and seed=....")
    limit = episode.start.get("max_steps")
    env = make(name, observation_mode="text", max_steps=limit, **options)
    try:
        env.reset(seed)
        if episode.start:
            env.set_state(episode.start["state"])
        # How an episode ends is in the log; the stuck rule may have looked at pictures.
        env.stuck_limit = len(episode.steps) + 1
        yield env, {}
        for row in episode.steps:
            _, reward, _, _, _ = env.step(row["agent_action"])
            if abs(reward - row["reward"]) > 1e-9:
                raise DataError(
                    f"{episode.path}, step {row['step']}: {row['agent_action']!r} brings {reward}, the log says "
                    f"{row['reward']}; give the game, seed and options of the episode."
                )
            yield env, row
    finally:
        env.close()


def frames(log: Episode | str | Path, **settings: Any) -> Iterator[Frame]:
    """A frame for the start of a log and for every step; ``settings`` as in `replayed`."""
    for env, row in replayed(log, **settings):
        thought = str(row.get("thought") or "")
        yield Frame(env.image(), row.get("agent_action", ""), thought, row.get("reward", 0.0), env.score)


def to_gif(log: Episode | str | Path, out: str | Path, *, seconds: float = 0.4, **settings: Any) -> Path:
    """Write an animated GIF of a log, ``seconds`` a frame; ``settings`` as in `replayed`."""
    from PIL import Image

    if not 0.02 <= seconds <= 60:
        raise UsageError(f"seconds={seconds} is no time for a frame; give 0.02 to 60.")
    pictures = [Image.fromarray(frame.image) for frame in frames(log, **settings)]
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(
        out, format="GIF", save_all=True, append_images=pictures[1:], duration=round(1000 * seconds), loop=0
    )
    return out


def to_mp4(log: Episode | str | Path, out: str | Path, *, seconds: float = 0.4, **settings: Any) -> Path:
    """Write an H.264 film of a log, ``seconds`` a frame; ``settings`` as in `replayed`. Needs imageio-ffmpeg."""
    import numpy as np

    try:
        from imageio_ffmpeg import write_frames
    except ImportError as error:
        raise MissingExtra("Replays as MP4", "lmgame") from error
    if not 0.02 <= seconds <= 60:
        raise UsageError(f"seconds={seconds} is no time for a frame; give 0.02 to 60.")
    pictures = (frame.image for frame in frames(log, **settings))
    first = next(pictures)
    # H.264 wants even sizes: the last row or column is repeated where need be.
    pad = [(0, first.shape[0] % 2), (0, first.shape[1] % 2), (0, 0)]
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    size = (first.shape[1] + pad[1][1], first.shape[0] + pad[0][1])
    # Half frames a second are right too, whatever the annotation says.
    rate: Any = 1 / seconds
    film = write_frames(str(out), size, fps=rate, codec="libx264", quality=8, macro_block_size=2)
    film.send(None)
    try:
        for picture in itertools.chain([first], pictures):
            film.send(np.ascontiguousarray(np.pad(picture, pad, mode="edge")))
    finally:
        film.close()
    return out


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 1.5rem auto; max-width: 70rem; padding: 0 1rem; }}
main {{ display: flex; gap: 1.5rem; flex-wrap: wrap; }}
img {{ image-rendering: pixelated; min-width: 20rem; max-width: 100%; border: 1px solid #999; }}
section {{ flex: 1; min-width: 18rem; }}
pre {{ white-space: pre-wrap; background: #f4f4f4; padding: .6rem; max-height: 20rem; overflow: auto; }}
</style></head><body>
<h1>{title}</h1>
<main><img id="frame" alt="frame of the game"><section>
<p><button id="back">&#9664;</button> <button id="play">Play</button> <button id="on">&#9654;</button>
<input id="at" type="range" min="0" max="{last}" value="0" aria-label="step"> <span id="where"></span></p>
<p>Action <b id="action"></b>, reward <b id="reward"></b>, score <b id="score"></b></p>
<pre id="thought"></pre></section></main>
<script>
const steps = {steps};
let at = 0, timer = null;
const get = id => document.getElementById(id);
function show(i) {{
  at = Math.max(0, Math.min(steps.length - 1, i));
  const s = steps[at];
  get("frame").src = "data:image/png;base64," + s[0];
  get("action").textContent = s[1] || "(start)"; get("thought").textContent = s[2];
  get("reward").textContent = s[3]; get("score").textContent = s[4];
  get("at").value = at; get("where").textContent = at + " / " + (steps.length - 1);
}}
function toggle() {{
  if (timer) {{ clearInterval(timer); timer = null; }}
  else timer = setInterval(() => at + 1 < steps.length ? show(at + 1) : toggle(), {pause});
  get("play").textContent = timer ? "Pause" : "Play";
}}
get("back").onclick = () => show(at - 1); get("on").onclick = () => show(at + 1); get("play").onclick = toggle;
get("at").oninput = event => show(+event.target.value);
document.onkeydown = event => {{
  if (event.key === "ArrowLeft") show(at - 1); if (event.key === "ArrowRight") show(at + 1);
}};
show(0);
</script></body></html>
"""


def to_html(log: Episode | str | Path, out: str | Path, *, seconds: float = 0.4, **settings: Any) -> Path:
    """Write one self-contained page that plays a log, with actions and thoughts; ``settings`` as in `replayed`."""
    from PIL import Image

    episode = log if isinstance(log, Episode) else read_log(log)
    rows = []
    for frame in frames(episode, **settings):
        buffer = io.BytesIO()
        Image.fromarray(frame.image).quantize(128).save(buffer, format="PNG")
        picture = base64.b64encode(buffer.getvalue()).decode()
        rows.append([picture, frame.action, frame.thought, frame.reward, frame.score])
    title = html.escape(f"{settings.get('game') or episode.start.get('game')}: {episode.path.name}")
    # "</" would end the script; as "<\/" it is the same string to JavaScript.
    steps = json.dumps(rows).replace("</", "<\\/").replace("<!--", "<\\!--")
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    page = _PAGE.format(title=title, last=len(rows) - 1, steps=steps, pause=round(1000 * seconds))
    out.write_text(page, encoding="utf-8")
    return out

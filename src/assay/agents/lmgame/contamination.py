"""Contamination: does a model know the game by heart? Order of frames, recall of the script, and what masks it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.agents.lmgame.episode import Setup
from assay.core.errors import DataError, UsageError
from assay.core.stats.intervals import mean_interval
from assay.systems.chat.model import ChatModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.agents.lmgame.games.courtroom import Masks
    from assay.agents.lmgame.games.courtroom_script import Script
    from assay.systems.embedding import EmbeddingModel


# -- order of frames ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameOrder:
    """Kendall's tau of the restored with the true order: mean over rounds, its interval, unread replies (tau 0)."""

    tau: float
    low: float
    high: float
    rounds: int
    unread: int
    taus: list[float]


def record_frames(game: str = "platformer", *, player: str = "expert", steps: int = 60, seed: int = 0) -> list[Any]:
    """Frames of an episode that a player plays, in order."""
    from assay.agents.lmgame.solvers.players import make_player

    env = Setup(game, "text", seed=seed).make()
    try:
        env.reset(seed)
        chosen, frames = make_player(game, player, seed), [env.image()]
        over = False
        while not over and len(frames) <= steps:
            _, _, terminated, truncated, _ = env.step(chosen.act(env))
            frames.append(env.image())
            over = terminated or truncated
        return frames
    finally:
        env.close()


def kendall(order: Sequence[int], truth: Sequence[int]) -> float:
    """Kendall's tau of two orders of the same things, without ties."""
    from scipy.stats import kendalltau

    if sorted(order) != sorted(truth) or len(order) < 2:
        raise DataError(f"{list(order)} and {list(truth)} are no two orders of the same two or more things.")
    places = {thing: i for i, thing in enumerate(order)}
    tau: Any = kendalltau(range(len(truth)), [places[thing] for thing in truth])
    return float(tau.statistic)


def read_order(reply: str, k: int) -> list[int] | None:
    """The last list of ``k`` different numbers 1 to ``k`` in a reply, from 0; None where there is none."""
    for line in reversed(reply.splitlines()):
        numbers = [int(n) for n in re.findall(r"\d{1,18}", line)]
        if sorted(numbers) == list(range(1, k + 1)):
            return [n - 1 for n in numbers]
    return None


async def frame_order(
    model: ChatModel,
    frames: Sequence[NDArray[np.uint8]],
    *,
    title: str = "a video game",
    k: int = 5,
    rounds: int = 20,
    rng: np.random.Generator,
    scale: float = 1.0,
) -> FrameOrder:
    """Show ``k`` consecutive frames in random order and ask for the true one.

    A high agreement together with a high correlation with the score hints at levels known by heart; on levels that
    were drawn anew it shows what can be told from the frames alone.
    """
    from PIL import Image

    from assay.systems.chat.images import image_part, text_part

    if k < 3 or len(frames) < k:
        raise UsageError(f"Ordering k={k} of {len(frames)} frames: give k of at least 3 and as many frames.")
    taus, unread = [], 0
    for _ in range(rounds):
        start = int(rng.integers(len(frames) - k + 1))
        shuffled = rng.permutation(k)
        content: list[dict[str, Any]] = [
            text_part(f"These {k} frames of {title} follow one another, but are shown in another order.")
        ]
        for number, place in enumerate(shuffled, 1):
            picture = image_part(Image.fromarray(frames[start + int(place)]), scale=scale)
            content += [text_part(f"Frame {number}:"), picture]
        content.append(
            text_part(f"Write their numbers 1 to {k} from the earliest frame to the latest, on one line, with commas.")
        )
        reply = await model.generate([{"role": "user", "content": content}], seed=int(rng.integers(2**31)))
        order = read_order(reply.text, k)
        if order is None:
            unread += 1
            taus.append(0.0)
        else:
            taus.append(kendall([int(shuffled[i]) for i in order], list(range(k))))
    found = mean_interval(taus, rng=rng)
    return FrameOrder(float(np.mean(taus)), found.low, found.high, rounds, unread, taus)


# -- recall of the script -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """A scene as it is known to its readers: how it is announced, and its lines ``Speaker: text``."""

    id: str
    announced: str
    lines: list[str]


def scenes_of(script: Script, masks: Masks | None = None) -> list[Scene]:
    """Scenes of a script with all that is said in them; masked, if masks are given."""
    shown = (lambda line: line) if masks is None else masks.text
    found = []
    for scene in script.scenes:
        people = scene.case["characters"]
        lines = [f"{shown(_person(people, who))}: {shown(text)}" for who, text in _spoken(scene.body["script"], people)]
        announced = shown(f"{script.title}: {scene.case['title']}, {scene.body.get('title', scene.id)}")
        found.append(Scene(scene.id, announced, lines))
    return found


def _spoken(node: Any, people: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Lines ``[speaker, text]`` anywhere below a node, in reading order."""
    if isinstance(node, list):
        if len(node) == 2 and all(isinstance(x, str) for x in node) and node[0] in people:
            return [(node[0], node[1])]
        return [line for child in node for line in _spoken(child, people)]
    if isinstance(node, Mapping):
        return [line for child in node.values() for line in _spoken(child, people)]
    return []


def _person(people: Mapping[str, Any], who: str) -> str:
    entry = people[who]
    return entry if isinstance(entry, str) else str(entry.get("name", who))


@dataclass(frozen=True)
class Recall:
    """How near a model's own version of each scene comes to the true one: cosine of embeddings, and its mean."""

    scenes: list[str]
    similarity: list[float]
    mean: float
    low: float
    high: float


async def script_recall(
    model: ChatModel,
    scenes: Sequence[Scene],
    encoder: EmbeddingModel,
    *,
    given: int = 1,
    max_tokens: int = 600,
    rng: np.random.Generator,
) -> Recall:
    """Ask for the dialogue of each scene from memory, and compare it with the true one.

    Parameters
    ----------
    given
        First lines that are shown; what follows is asked for.
    """
    wanted, written = [], []
    for scene in scenes:
        if len(scene.lines) <= given:
            raise DataError(f"Scene {scene.id} has {len(scene.lines)} lines; more than the {given} given are needed.")
        begin = "\n".join(scene.lines[:given])
        told = (
            f"From memory: write the dialogue of this scene as it stands in the game, a line a speech: `Name: text`. "
            f"If you do not know it, write what you think is said.\n\nScene: {scene.announced}\n{begin}"
        )
        reply = await model.generate(
            [{"role": "user", "content": told}], max_tokens=max_tokens, seed=int(rng.integers(2**31))
        )
        wanted.append("\n".join(scene.lines[given:]))
        written.append(reply.text.strip() or "(nothing)")
    vectors = np.asarray(encoder.encode([*wanted, *written]), float)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosine = (vectors[: len(scenes)] * vectors[len(scenes) :]).sum(axis=1)
    found = mean_interval(cosine, rng=rng)
    return Recall([s.id for s in scenes], [float(c) for c in cosine], float(cosine.mean()), found.low, found.high)


def recall_and_score(similarity: Sequence[float], scores: Sequence[float]) -> dict[str, float]:
    """Spearman's rho of recall and game score over models, with interval and number of models.

    Raises
    ------
    DataError
        Unequal lengths, or fewer than three models.
    """
    from assay.agents.lmgame.scoring import spearman_interval, spearman_matrix

    _, rho, _ = spearman_matrix({"recall": list(similarity), "score": list(scores)})
    low, high = spearman_interval(float(rho[0, 1]), len(similarity))
    return {"rho": float(rho[0, 1]), "low": low, "high": high, "models": len(similarity)}


# -- mitigation -----------------------------------------------------------------------------------------------------

_GIVEN = ("Ada", "Bruno", "Cleo", "Dario", "Edda", "Fabio", "Greta", "Hugo", "Ilse", "Jonas", "Karla", "Luca", "Mona")
_FAMILY = ("Aster", "Birk", "Calder", "Dorn", "Ebner", "Falk", "Gruber", "Holm", "Ivers", "Jansen", "Kessler", "Lund")


def entity_masks(script: Script, rng: np.random.Generator) -> dict[str, Any]:
    """A ``mapping.json`` that gives every person and every piece of evidence another name.

    Parts of a name (a surname in a line) are replaced as the whole is; titles such as Judge stay. Different names stay
    different.
    """
    people: list[str] = []
    evidence: list[str] = []
    for scene in script.scenes:
        people += [_person(scene.case["characters"], who) for who in scene.case["characters"]]
        evidence += [_person(scene.case["evidence"], item) for item in scene.case["evidence"]]
    people, evidence = list(dict.fromkeys(people)), list(dict.fromkeys(evidence))
    families = [f"{family}{suffix}" for suffix in ("", "mann", "sen", "ow") for family in _FAMILY]
    if len(people) > len(families):
        raise UsageError(f"{len(people)} people are more than the {len(families)} names there are to mask them with.")
    drawn = [families[i] for i in rng.permutation(len(families))]
    names: dict[str, str] = {}
    for person, family in zip(people, drawn):
        words = person.split()
        title = words[0] if len(words) > 1 and words[0] in _TITLES else None
        given = _GIVEN[int(rng.integers(len(_GIVEN)))]
        names[person] = f"{title or given} {family}" if len(words) > 1 else family
        if len(words) > 1:
            names.setdefault(words[-1], family)
            if title is None:
                names.setdefault(words[0], given)
    numbered = rng.permutation(len(evidence)) + 1
    return {
        "name_mappings": names,
        "dialog": {},
        "evidence_mappings": {name: f"Exhibit {number}" for name, number in zip(evidence, numbered)},
    }


_TITLES = frozenset(
    {"Judge", "Inspector", "Professor", "Doctor", "Dr", "Dr.", "Mr", "Mr.", "Mrs", "Mrs.", "Miss", "Ms", "Captain"}
)


async def paraphrase(
    model: ChatModel, lines: Sequence[str], *, keep: Sequence[str] = (), rng: np.random.Generator
) -> dict[str, str]:
    """Other wordings of lines, as the ``dialog`` of a ``mapping.json``; one that loses a name of ``keep`` is refused.

    What contradicts what must survive a paraphrase: numbers and the names in ``keep`` have to stay.
    """
    found: dict[str, str] = {}
    for line in dict.fromkeys(lines):
        told = f"Say this in other words, with the same facts, names and numbers. Write one line only.\n{line}"
        reply = await model.generate([{"role": "user", "content": told}], seed=int(rng.integers(2**31)))
        text = " ".join(reply.text.split())
        facts = [*re.findall(r"\d+(?:[:.]\d+)?", line), *(name for name in keep if name in line)]
        if text and text != line and all(fact in text for fact in facts):
            found[line] = text
    return found


def leaked(masks: Masks, scenes: Sequence[Scene]) -> list[str]:
    """Original names that still stand in masked scenes: empty when the masks hold."""
    originals = [*masks.names, *masks.evidence]
    new = {*masks.names.values(), *masks.evidence.values()}
    text = "\n".join(line for scene in scenes for line in [scene.announced, *scene.lines])
    return [n for n in originals if n not in new and re.search(rf"(?<!\w){re.escape(n)}(?!\w)", text)]


def table(before: Recall, after: Recall | None = None) -> Any:
    """Recall by scene, before and (where given) after mitigation."""
    import polars as pl

    from assay.core.table import Chart, Table

    columns: dict[str, Any] = {"scene": before.scenes, "similarity": before.similarity}
    notes = [f"Mean {before.mean:.3f}, 95 % interval {before.low:.3f} to {before.high:.3f} over scenes."]
    if after is not None:
        columns["after"] = after.similarity
        notes.append(f"After mitigation {after.mean:.3f}, {after.low:.3f} to {after.high:.3f}.")
    notes.append("Cosine of sentence embeddings with the true script; hold it against a model that cannot know it.")
    found = pl.DataFrame(columns)
    return Table(
        "recall", "Recall of the script by scene", found, notes=notes, chart=Chart("bar", x="scene", y="similarity")
    )

"""Makers: item sets, pictures, review queues, fine-tuning data. Each writes a folder with a manifest."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import UsageError
from assay.multimodal.asciieval.data import Item, ItemSet, load, write_items
from assay.multimodal.asciieval.tuning import TuneMode


def shipped(out: Path) -> None:
    """The shipped items, made anew from shapes and seed; equal to those in the package."""
    from assay.multimodal.asciieval.generator import SHIPPED_DRAWINGS, SHIPPED_SEED, shipped_items

    write_items(shipped_items(), out / "items.jsonl")
    _manifest(out, "shipped", {"drawings": list(SHIPPED_DRAWINGS)}, seed=SHIPPED_SEED, licence="Apache-2.0")


def generated(
    out: Path,
    *,
    drawings: int = 3,
    first: int = 1000,
    heights: tuple[int, ...] = (5, 10, 15, 20, 25, 40),
    styles: tuple[Literal["structure", "tone"], ...] = ("structure", "structure", "structure", "tone"),
    crossed: bool = False,
    substitutions: float = 0.0,
    border: float = 0.0,
    concepts: tuple[str, ...] = (),
    seed: int = 0,
) -> None:
    """Items from the shapes of the package, with length, style and noise under control.

    ``drawings`` are made of each concept, numbered from ``first`` (shipped items have 0 to 2, training sets of the
    methods 100 to 123: other numbers are other drawings); ``crossed`` makes each in every height and style.
    """
    from assay.multimodal.asciieval.generator import generate

    items = generate(
        range(first, first + drawings),
        heights=heights,
        styles=styles,
        seed=seed,
        substitutions=substitutions,
        border=border,
        concepts=concepts or None,
        crossed=crossed,
    )
    write_items(items, out / "test.jsonl")
    options = {
        "drawings": drawings,
        "first": first,
        "heights": list(heights),
        "styles": list(styles),
        "crossed": crossed,
        "substitutions": substitutions,
        "border": border,
        "concepts": list(concepts),
    }
    _manifest(out, "generated", options, seed=seed, licence="Apache-2.0")


def items(
    out: Path,
    *,
    art: str,
    mapping: str,
    train: str | None = None,
    similarity: float = 0.9,
    licence: str = "unknown",
    seed: int = 0,
) -> None:
    """An item set from art files, with a review queue.

    Parameters
    ----------
    art
        Folder of art files; sub-folders are categories (see `kit.collect`).
    mapping
        CSV file category, class, group, concept.
    train
        Training items: drawings that are, or nearly are, among them fall out.
    similarity
        Edit similarity from which two drawings are the same.
    licence
        Of the art, for the manifest.
    seed
        Of distractors and their order.

    Notes
    -----
    Writes ``candidates.jsonl``; ``assay make asciieval review -o candidates=FILE`` then writes ``test.jsonl``.
    """
    from assay.core.audit import Audit
    from assay.multimodal.asciieval import kit

    places = kit.read_mapping(Path(mapping))
    audit = Audit(key=lambda raw: raw.source)
    found = kit.collect(Path(art))
    found = audit.keep(
        found, "mapped", lambda r: kit.place_of(r.category, places) is not None, "its category is not in the mapping"
    )
    cleaned = []
    for raw in found:
        plain, removed = kit.remove_signature(raw.art)
        cleaned.append(
            kit.RawArt(plain, raw.category, raw.source, removed, {"original_ascii_art": raw.art} if removed else {})
        )
    cleaned = audit.keep(
        cleaned, "visible", lambda r: sum(not c.isspace() for c in r.art) >= 4, "fewer than four visible characters"
    )
    cleaned = audit.keep(
        cleaned,
        "no text",
        lambda r: not kit.text_hints(r.art, [_placed(r, places).concept]),
        "the drawing names what it shows",
    )
    twins = {
        cleaned[gone].source: cleaned[kept].source
        for gone, kept, _ in kit.deduplicate([r.art for r in cleaned], similarity)
    }
    cleaned = audit.sift(
        cleaned, "unique", lambda r: f"like {twins[r.source]}" if r.source in twins else None, "near-duplicate"
    )
    if train is not None:
        known = load(train, "train").items
        seen = {leak.test: leak for leak in kit.leakage(
            [Item(r.source, r.art, ("a", "b", "c", "d"), 0) for r in cleaned], known, similarity)}  # fmt: skip
        cleaned = audit.sift(
            cleaned,
            "not in training",
            lambda r: f"like {seen[r.source].train}" if r.source in seen else None,
            "in the training set",
        )
    if not cleaned:
        raise UsageError("No drawing passed the filters; see audit counts: " + json.dumps(audit.counts()))
    made = kit.with_choices([(raw, _placed(raw, places)) for raw in cleaned], places.values(), seed)
    write_items(made, out / "candidates.jsonl")
    audit.write(out / "audit.jsonl")
    options = {"art": art, "mapping": mapping, "train": train, "similarity": similarity}
    _manifest(out, "items", options, seed=seed, licence=licence, audit=audit)


def _placed(raw: Any, places: Any) -> Any:
    from assay.multimodal.asciieval.kit import place_of

    place = place_of(raw.category, places)
    if place is None:
        raise UsageError(f"Category {raw.category!r} of {raw.source} is not in the mapping.")
    return place


def review(out: Path, *, candidates: str, reviewer: str = "", ask: bool = True) -> None:
    """Keep, fix or drop candidates at the terminal; writes what was kept as ``test.jsonl``.

    Decisions are appended to ``decisions.jsonl`` as they are made: stop and go on as you like. ``ask=false`` only
    applies them.
    """
    from assay.multimodal.asciieval import review as queue

    waiting = load(candidates).items
    decisions = out / "decisions.jsonl"
    if ask:
        queue.ask(waiting, decisions, reviewer)
    kept, counts = queue.apply(waiting, queue.read_decisions(decisions))
    write_items(kept, out / "test.jsonl")
    _manifest(out, "review", {"candidates": candidates, "reviewer": reviewer}, counts=counts)


def images(
    out: Path, *, data: str | None = None, split: str = "test", truncate: bool = True, scale: float = 1.0
) -> None:
    """Pictures of all items as PNG files in ``img/``, and the items that name them."""
    from dataclasses import replace

    from assay.multimodal.asciieval.rendering import RenderOptions, png

    options = RenderOptions(truncate=truncate, scale=scale)
    source = load(data, split)
    (out / "img").mkdir(parents=True, exist_ok=True)
    named = []
    for number, item in enumerate(source.items):
        name = item.image or f"temp_image_{number}.png"
        target = out / "img" / name
        if target.resolve().parent != (out / "img").resolve():
            raise UsageError(f"Item {item.id}: field 'image_path' {name!r} leaves the folder; give plain file names.")
        target.write_bytes(png(item.art, options))
        named.append(replace(item, image=name))
    write_items(named, out / f"{split}.jsonl")
    _manifest(out, "images", {"data": data, "split": split, "truncate": truncate, "scale": scale}, parents=source)


def describe(
    out: Path, *, data: str | None = None, split: Literal["test", "train"] = "test", train: str | None = None
) -> None:
    """What an item set holds, how it differs from the published one, and which items to look at: ``description.json``.

    Parameters
    ----------
    data, split
        Items; ``train`` is compared to ASCIITune.
    train
        Training items, to find drawings of ``data`` that are, or nearly are, among them.
    """
    from assay.multimodal.asciieval import kit
    from assay.multimodal.asciieval.describe import against_published, statistics, suspicious

    source = load(data, split)
    found = statistics(source.items)
    described: dict[str, Any] = {
        "source": dict(source.provenance),
        "statistics": found,
        "unlike_published": against_published(found, split),
        "look_at": suspicious(source.items),
    }
    if train is not None:
        described["in_training"] = [asdict(leak) for leak in kit.leakage(source.items, load(train, "train").items)]
    text = json.dumps(described, indent=1, ensure_ascii=False) + "\n"
    (out / "description.json").write_text(text, encoding="utf-8")
    options = {"data": data, "split": split, "train": train}
    _manifest(out, "describe", options, parents=source, counts={"items": len(source.items)})


def tune(
    out: Path,
    *,
    data: str | None = None,
    mode: TuneMode = "text",
    rationale: str | None = None,
    solver: str | None = None,
    test: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> None:
    """ASCIITune fine-tuning data in chat layout, with the published training settings beside it.

    Parameters
    ----------
    data
        Training items (file, folder, ``hf:ASCIIEval/ASCIITune``); nothing = generated drawings.
    mode
        ``text``, ``image``, ``both``, or ``random``: one of them drawn for each item.
    rationale
        A model that writes analyses (``openai:gpt-5``), or ``published`` for those in the rows; only items with a
        usable analysis stay.
    solver
        A model that must first get an item right from its picture.
    test
        Items to be tested on: training drawings like them fall out.
    limit
        The first so many items.
    seed
        Of drawn modes.
    """
    from assay.core.audit import Audit
    from assay.multimodal.asciieval import kit, tuning
    from assay.multimodal.asciieval.recognisers import training_items

    source = load(data, "train") if data else None
    chosen = list(source.items if source else training_items())[:limit]
    audit = Audit()
    if test is not None:
        leaks = {leak.train: leak.test for leak in kit.leakage(chosen, load(test).items)}
        seen = {leak.test for leak in kit.leakage(chosen, load(test).items)}
        chosen = audit.keep(
            chosen, "not in test", lambda item: item.id not in seen, f"like one of {len(leaks)} test drawings"
        )
    analyses = None
    if rationale == "published":
        analyses = tuning.published_analyses(chosen)
    elif rationale is not None:
        analyses = _rationales(chosen, rationale, solver, out, audit)
    if analyses is not None:
        found = analyses
        chosen = [item for item in chosen if item.id in found]
    elif solver is not None:
        raise UsageError("Option solver filters items for rationales; give rationale= too.")
    tuning.export(chosen, out, mode=mode, analyses=analyses, seed=seed)
    audit.write(out / "audit.jsonl")
    options = {"data": data, "mode": mode, "rationale": rationale, "solver": solver, "test": test, "limit": limit}
    _manifest(out, "tune", options, seed=seed, audit=audit, parents=source, counts={"rows": len(chosen)})


def _rationales(chosen: list[Item], rationale: str, solver: str | None, out: Path, audit: Any) -> dict[str, str]:
    from assay.core.map import resumable_map
    from assay.multimodal.asciieval import tuning
    from assay.systems.loading import load as load_system

    writer = load_system(rationale, role="writer")
    judge = load_system(solver, role="solver") if solver else None

    async def one(item: Item) -> dict[str, str]:
        found = await tuning.synthesise(item, writer, judge)
        return {"id": found.id, "analysis": found.analysis, "fault": found.fault}

    rows = list(resumable_map(one, chosen, key=lambda item: item.id, out=out))
    faults = {row["id"]: row["fault"] for row in rows}
    audit.sift(chosen, "rationale", lambda item: faults[item.id] or None, "no usable analysis")
    return {row["id"]: row["analysis"] for row in rows if not row["fault"]}


def train(
    out: Path,
    *,
    data: str,
    base: str = "local:smollm2",
    epochs: int | None = None,
    lora: tuple[str, ...] = (),
    learning_rate: float = 2e-5,
    batch: int = 16,
    micro_batch: int = 1,
    bf16: bool = False,
    max_tokens: int | None = None,
    save_every: int = 50,
    seed: int = 0,
) -> None:
    """Fine-tune a language model on what `tune` wrote; ``hf:FOLDER`` then names the result.

    Killed, it goes on from its last checkpoint when the same is asked for again.

    Parameters
    ----------
    data
        Folder of `tune`, or its ``sft.jsonl``.
    base
        ``local:smollm2``, a folder, or a repository of the hub.
    epochs
        Nothing = as published: 1, with rationales 3, with pictures 2.
    lora, learning_rate, batch, micro_batch, bf16, max_tokens, save_every, seed
        See `training.Settings`.
    """
    from assay.core.datasets.manifest import file_hash
    from assay.multimodal.asciieval import sft, training
    from assay.systems.loading import load as load_system

    source = Path(data) / "sft.jsonl" if Path(data).is_dir() else Path(data)
    rows = sft.read_rows(source)
    name = base if base.startswith(("local:", "hf:")) else f"hf:{base}"
    settings = training.Settings(
        epochs=sft.published_epochs(rows) if epochs is None else epochs,
        learning_rate=learning_rate,
        batch=batch,
        micro_batch=micro_batch,
        lora=lora,
        bf16=bf16,
        max_tokens=max_tokens,
        save_every=save_every,
        seed=seed,
    )
    identity = json.dumps({"base": name, "data": file_hash(source), **asdict(settings)}, sort_keys=True)
    if training.finished(out, identity):
        return
    counts = training.fine_tune(load_system(f"{name}?dtype=float32"), rows, out, settings, identity=identity)
    options = {"data": data, "base": name, **asdict(settings)}
    _manifest(out, "train", options, seed=seed, counts=counts)


def sweep(
    out: Path,
    *,
    system: str,
    longest: tuple[int, ...] = (),
    scale: tuple[float, ...] = (),
    modes: str = "image",
    data: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    budget: float | None = None,
) -> None:
    """Low-resolution prompting: one run of a system a picture size, and accuracy against size as table and figure.

    Runs lie in ``runs/``; interrupted, the sweep goes on where it stopped.

    Parameters
    ----------
    system
        Name of a system that reads pictures.
    longest, scale
        Pixels of the longer side, or factors on both sides: one of the two. Nothing = 32, 64, 128, 256, 512 pixels.
    modes
        ``image``, ``both`` or ``image,both``.
    data, limit, seed
        Items, how many of them, seed of the runs.
    budget
        US dollars a run.
    """
    import assay
    from assay.core.results import Runs
    from assay.multimodal.asciieval.analyses import resolution
    from assay.report.export import write_tables

    if longest and scale:
        raise UsageError("Options longest and scale were both given; sweep one of them.")
    if "text" in modes.split(","):
        raise UsageError("Option modes holds text, which has no picture to size; give image, both, or image,both.")
    by = "scale" if scale else "longest"
    sizes: tuple[float, ...] = scale or longest or (32, 64, 128, 256, 512)
    if min(sizes) <= 0 or len(set(sizes)) < max(2, len(sizes)):
        raise UsageError(f"Option {by}={','.join(map(str, sizes))} must hold two or more different sizes above 0.")
    asked = {"system": system, "modes": modes, "data": data, "limit": limit, "seed": seed}
    note = out / "sweep.json"
    # The engine would quietly add samples to a run that stands; more sizes are welcome, other questions are not.
    if note.is_file() and json.loads(note.read_text(encoding="utf-8")) != asked:
        raise UsageError(f"{out} holds a sweep with other options ({note.name}); sweep into another folder.")
    note.write_text(json.dumps(asked) + "\n", encoding="utf-8")
    runs = []
    for size in sorted(sizes):
        options = {"modes": modes, by: size} | ({"data": data} if data else {})
        place = out / "runs" / f"{by}-{size:g}"
        runs.append(
            assay.run("asciieval", system, options=options, samples=limit, seed=seed, into=place, budget=budget)
        )
    write_tables([resolution(Runs(runs))], out)
    _manifest(out, "sweep", {**asked, by: list(sizes), "budget": budget}, seed=seed, counts={"runs": len(runs)})


def _manifest(out: Path, recipe: str, options: dict[str, Any], *, parents: ItemSet | None = None, **more: Any) -> None:
    from assay.core.datasets import write_manifest

    if parents is not None:
        more["parents"] = [dict(parents.provenance)]
    write_manifest(out, recipe=f"asciieval.{recipe}", options=options, **more)

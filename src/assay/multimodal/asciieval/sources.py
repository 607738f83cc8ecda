"""Optional sources of real art where they are installed: cowsay drawings, the packages ``art`` and ``pyfiglet``.

None of it is shipped: each keeps its own licence, which the provenance names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.core.datasets.readers import read_bytes
from assay.core.errors import UsageError
from assay.multimodal.asciieval.data import Item
from assay.multimodal.asciieval.generator import trim
from assay.multimodal.asciieval.kit import Place, RawArt, read_cow, with_choices

COW_FOLDERS = ("/usr/share/cowsay/cows", "/usr/local/share/cowsay/cows", "node_modules/cowsay/cows")

# Names of cowsay files that say what the drawing shows, with their place in the tree.
_ANIMALS = {
    **dict.fromkeys(("cow", "default", "fat-cow", "small"), "cow"),
    **dict.fromkeys(("cat", "cat2", "catfence", "chito", "kitten", "kitty"), "cat"),
    **dict.fromkeys(("goat", "goat2"), "goat"),
    **dict.fromkeys(("octopus", "smiling-octopus"), "octopus"),
    **dict.fromkeys(("penguin", "tux"), "penguin"),
    "bearface": "bear",
    "bunny": "rabbit",
}
_NAMED_AS_DRAWN = (
    "dolphin", "dragon", "duck", "elephant", "fox", "hedgehog", "kangaroo", "koala", "llama", "lobster", "moose", "owl",
    "sheep", "snail", "squirrel", "turkey", "turtle", "whale",
)  # fmt: skip
_ANIMALS |= {name: name for name in _NAMED_AS_DRAWN}
_CHARACTERS = {
    "daemon": "demon", "ghost": "ghost", "ghostbusters": "ghost", "robot": "robot", "robotfindskitten": "robot",
    "skeleton": "skeleton", "snowman": "snowman", "witch": "witch",
}  # fmt: skip
COWS: dict[str, Place] = {
    **{name: Place("animals & natural", "animal", concept) for name, concept in _ANIMALS.items()},
    **{name: Place("smileys & people", "character", concept) for name, concept in _CHARACTERS.items()},
}


def cow_items(folder: Path | str | None = None, seed: int = 0) -> list[Item]:
    """Items from cowsay files whose names say what they show.

    Parameters
    ----------
    folder
        Folder with ``.cow`` files (Debian package cowsay, npm package cowsay); None = the usual places.

    Raises
    ------
    UsageError
        If there is no such folder, or it holds none of the known names.
    """
    places = [Path(folder)] if folder is not None else [Path(name) for name in COW_FOLDERS]
    found = next((place for place in places if place.is_dir() and any(place.glob("*.cow"))), None)
    if found is None:
        raise UsageError(
            f"No folder with .cow files at {' or '.join(map(str, places))}; "
            "install cowsay (apt-get install cowsay) or give its folder."
        )
    placed: list[tuple[RawArt, Place]] = []
    seen: set[str] = set()
    for path in sorted(found.glob("*.cow")):
        if path.stem in COWS:
            art = read_cow(read_bytes(path).decode("utf-8", "replace"), path.name)
            if art and art not in seen:
                seen.add(art)
                placed.append((RawArt(art, path.stem, path.name), COWS[path.stem]))
    if not placed:
        raise UsageError(
            f"Folder {found} holds none of the {len(COWS)} cowsay drawings whose names say what they show."
        )
    return with_choices(placed, COWS.values(), seed)


def letter_items(fonts: Sequence[str] = ("standard", "banner", "block", "big"), seed: int = 0) -> list[Item]:
    """Large letters drawn by pyfiglet: concepts are the letters, one item a letter and font.

    Raises
    ------
    UsageError
        If pyfiglet is not installed or a font is not known.
    """
    try:
        import pyfiglet
    except ImportError:
        raise UsageError("Large letters need the package pyfiglet; run: pip install pyfiglet") from None
    placed = []
    for font in fonts:
        try:
            figlet = pyfiglet.Figlet(font=font)
        except pyfiglet.FontNotFound:
            raise UsageError(f"pyfiglet has no font {font!r}; `pyfiglet --list_fonts` names them.") from None
        for code in range(ord("A"), ord("Z") + 1):
            art = trim(figlet.renderText(chr(code)))
            raw = RawArt(art, f"letters/{font}", f"pyfiglet:{font}")
            placed.append((raw, Place("symbols", "letter", f"letter {chr(code)}")))
    return with_choices(placed, (), seed)


def one_line_items(seed: int = 0) -> list[Item]:
    """One-line pieces of the package ``art`` whose names are plain words, as items of the class symbols.

    Raises
    ------
    UsageError
        If the package is not installed.
    """
    try:
        from art import ART_NAMES, art  # type: ignore[import-not-found]
    except ImportError:
        raise UsageError("One-line pieces need the package art; run: pip install art") from None
    placed = []
    seen: set[str] = set()
    for name in sorted(ART_NAMES):
        piece = trim(str(art(name)))
        if name.isalpha() and len(name) > 2 and piece and piece not in seen:
            seen.add(piece)
            placed.append((RawArt(piece, name, f"art:{name}"), Place("symbols", "one-liner", name)))
    return with_choices(placed, (), seed, "structure")

"""Games of deduction: keep what agrees with every answer, ask what tells most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import permutations, product
from math import log2
from string import ascii_lowercase
from typing import Any

import numpy as np

from assay.agents.gem.games.mastermind import pegs
from assay.agents.gem.games.wordle import feedback
from assay.agents.gem.games.words import words_of

_MOST_CODES = 5000
_MOST_GUESSES = 600


def _range(view: Mapping[str, Any]) -> tuple[int, int]:
    low, high = view["min_number"], view["max_number"]
    for guess, answer in view["answers"]:
        if answer == "higher":
            low = max(low, guess + 1)
        elif answer == "lower":
            high = min(high, guess - 1)
    return low, high


def guess_the_number(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """Bisection: the middle of what is left (the upper or lower one at random)."""
    low, high = _range(view)
    return [str((low + high + int(rng.random() < 0.5)) // 2)]


def worst_case_guesses(view: Mapping[str, Any]) -> int:
    """Guesses that always find the number: the depth of a binary tree over what is left."""
    low, high = _range(view)
    return (high - low + 1).bit_length()


@lru_cache(maxsize=4)
def _codes(length: int, numbers: int, repeats: bool) -> np.ndarray:
    """All codes, (n, length)."""
    draw = product(range(1, numbers + 1), repeat=length) if repeats else permutations(range(1, numbers + 1), length)
    return np.array(list(draw), dtype=np.int16)


def _answers(guesses: np.ndarray, codes: np.ndarray, numbers: int) -> np.ndarray:
    """Answer of every guess to every code as one integer, black * (length + 1) + white: (guesses, codes)."""
    length = codes.shape[1]
    black = sum((guesses[:, None, at] == codes[None, :, at]).astype(np.int16) for at in range(length))
    common = np.zeros((len(guesses), len(codes)), dtype=np.int16)
    for number in range(1, numbers + 1):
        common += np.minimum((guesses == number).sum(1)[:, None], (codes == number).sum(1)[None]).astype(np.int16)
    return black * (length + 1) + common - black


def mastermind(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """Knuth's minimax: the guess whose worst answer leaves fewest codes, a code that is still possible among equals.

    With more than 5,000 codes possible one of a thousand random codes that agree with the answers is taken.
    """
    length, numbers, repeats = view["code_length"], view["num_numbers"], view["duplicate_numbers"]
    codes = _codes(length, numbers, repeats) if _count(length, numbers, repeats) <= 10**6 else None
    if codes is None:
        return [_any_code(view, rng)]
    left = codes
    for guess, black, white in view["answers"]:
        answer = _answers(np.array([guess], dtype=np.int16), left, numbers)[0]
        left = left[answer == black * (length + 1) + white]
    if not view["answers"] or len(left) <= 2 or len(left) > _MOST_CODES:
        # Without repeats all first guesses are alike; with them a pair of pairs tells more than four different ones.
        if not view["answers"] and repeats:
            return [" ".join(str(1 + at // 2 % numbers) for at in range(length))]
        return [" ".join(map(str, left[int(rng.integers(len(left)))]))]
    others = codes if len(codes) <= _MOST_GUESSES else codes[rng.permutation(len(codes))[:_MOST_GUESSES]]
    own = left if len(left) <= _MOST_GUESSES else left[rng.permutation(len(left))[:_MOST_GUESSES]]
    guesses = np.concatenate([own, others])
    answers = _answers(guesses, left, numbers)
    worst = np.array([np.bincount(row).max() for row in answers])
    return [" ".join(map(str, guesses[int(np.argmin(worst))]))]


def _count(length: int, numbers: int, repeats: bool) -> int:
    count = 1
    for at in range(length):
        count *= numbers if repeats else numbers - at
    return count


def _any_code(view: Mapping[str, Any], rng: np.random.Generator) -> str:
    length, numbers, repeats = view["code_length"], view["num_numbers"], view["duplicate_numbers"]
    best, misses = [1] * length, 10**9
    for _ in range(1000):
        drawn = rng.integers(numbers, size=length) if repeats else rng.permutation(numbers)[:length]
        code = [int(number) + 1 for number in drawn]
        wrong = sum(pegs(code, list(guess)) != (black, white) for guess, black, white in view["answers"])
        if wrong < misses:
            best, misses = code, wrong
    return " ".join(map(str, best))


@lru_cache(maxsize=16)
def _opening(words: tuple[str, ...]) -> str:
    return _most_telling(words, words)


def _most_telling(guesses: Sequence[str], left: Sequence[str]) -> str:
    """The guess with the highest entropy of its answer, a word that is still possible among equals."""
    best, most = guesses[0], -1.0
    possible = set(left)
    for guess in guesses:
        counts = Counter(feedback(word, guess) for word in left).values()
        entropy = -sum(n / len(left) * log2(n / len(left)) for n in counts) + 1e-9 * (guess in possible)
        if entropy > most:
            best, most = guess, entropy
    return best


def wordle(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """The word of the list whose answer has the highest entropy; letters at random when no word of the list is left."""
    words = words_of(view["word_length"], view["words"])
    left = [word for word in words if all(feedback(word, guess) == marks for guess, marks in view["answers"])]
    if not left:
        letters = [ascii_lowercase[int(i)] for i in rng.integers(26, size=view["word_length"])]
        for guess, marks in view["answers"]:
            for place, mark in enumerate(marks):
                if mark == "G":
                    letters[place] = guess[place]
        return ["".join(letters)]
    if not view["answers"]:
        return [_opening(words)]
    return [left[0] if len(left) <= 2 else _most_telling(words, left)]


def hangman(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """Name the word when one is left, else the letter that parts the words best (naming earns more than opening)."""
    shown, tried = view["shown"], set(view["letters"])
    left = [
        word
        for word in words_of(len(shown), view["words"])
        if word not in view["tried"] and _agrees(word, shown, tried)
    ]
    if len(left) == 1:
        return left
    free = [letter for letter in ascii_lowercase if letter not in tried]
    if not left:
        order = [letter for letter in "etaoinsrhldcumfpgwybvkxjqz" if letter in free]
        return [order[0] if order else shown.replace("_", ascii_lowercase[int(rng.integers(26))])]

    def surprise(letter: str) -> float:
        counts = Counter(tuple(at for at, own in enumerate(word) if own == letter) for word in left).values()
        return -sum(n / len(left) * log2(n / len(left)) for n in counts)

    best = max(free, key=surprise)
    # Opening the last place would end the game without the reward for naming the word.
    return [best] if shown.count("_") > 1 else [left[int(rng.integers(len(left)))]]


def _agrees(word: str, shown: str, tried: set[str]) -> bool:
    return all(own == seen if seen != "_" else own not in tried for own, seen in zip(word, shown))

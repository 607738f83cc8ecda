"""A small convolutional network over pictures of drawings, trained on ASCII pictures or on the plain shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingExtra
from assay.multimodal.asciieval.data import Item
from assay.multimodal.asciieval.prompts import Mode, Question
from assay.multimodal.asciieval.recognisers import Array, question_of, read_picture

if TYPE_CHECKING:
    import torch


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("Training a network", "local") from None
    return torch


class PictureNetwork:
    """Three convolutions and a linear layer over a picture of ``side`` x ``side`` pixels (about 0.1 M weights).

    Parameters
    ----------
    side
        Pixels; a multiple of 8.
    epochs, rate
        Of training with AdamW and a cosine schedule.
    seed
        Of weights, order and augmentation.
    threads
        Torch threads while it trains; restored afterwards.
    """

    modes: tuple[Mode, ...] = ("image", "both")

    def __init__(self, side: int = 32, epochs: int = 12, rate: float = 3e-3, seed: int = 0, threads: int = 1) -> None:
        self.side, self.epochs, self.rate, self.seed, self.threads = side, epochs, rate, seed, threads
        self._names: list[str] = []
        self._net: Any = None

    def fit(self, items: Sequence[Item]) -> PictureNetwork:
        """Learn from rendered items."""
        pictures = np.stack([read_picture(question_of(item, "image").png or b"", self.side) for item in items])
        return self.fit_pictures(pictures, [item.right for item in items])

    def fit_pictures(self, pictures: NDArray[np.float32], names: Sequence[str]) -> PictureNetwork:
        """Learn from ink pictures in [0, 1], (n, side, side), and their names."""
        torch = _torch()
        self._names = sorted(set(names))
        place = {name: at for at, name in enumerate(self._names)}
        labels = torch.tensor([place[name] for name in names])
        data = torch.from_numpy(np.ascontiguousarray(pictures))[:, None]
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                self._net = self._build(torch, len(self._names))
                self._train(torch, data, labels)
        finally:
            torch.set_num_threads(before)
        return self

    def _build(self, torch: Any, classes: int) -> Any:
        nn = torch.nn
        layers: list[Any] = []
        for before, after in ((1, 12), (12, 24), (24, 48)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(48 * (self.side // 8) ** 2, classes))

    def _train(self, torch: Any, data: torch.Tensor, labels: torch.Tensor) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        steps = self.epochs * -(-len(data) // 64)
        optimiser = torch.optim.AdamW(self._net.parameters(), lr=self.rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, self.rate, total_steps=steps)
        self._net.train()
        for _ in range(self.epochs):
            order = torch.randperm(len(data), generator=generator)
            for batch in order.split(64):
                shift = torch.randint(-2, 3, (2,), generator=generator).tolist()
                shown = torch.roll(data[batch], shift, dims=(2, 3))
                loss = torch.nn.functional.cross_entropy(self._net(shown), labels[batch], label_smoothing=0.1)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
        self._net.eval()

    def names(self) -> Sequence[str]:
        """Names it was trained on."""
        return self._names

    def log_probabilities(self, questions: Sequence[Question]) -> Array:
        """Log-probabilities of the names, (questions, names)."""
        pictures = np.stack([read_picture(question.png or b"", self.side) for question in questions])
        return self.of_pictures(pictures)

    def of_pictures(self, pictures: NDArray[np.float32]) -> Array:
        """Log-probabilities of the names for ink pictures, (n, names)."""
        torch = _torch()
        with torch.inference_mode():
            parts = torch.from_numpy(np.ascontiguousarray(pictures))[:, None].split(256)
            return torch.cat([self._net(part).log_softmax(1) for part in parts]).double().numpy()

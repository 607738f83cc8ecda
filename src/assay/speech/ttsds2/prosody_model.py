"""The masked prosody model (cdminix/masked_prosody_model): pitch, energy and voicing in bins to frames of 256 numbers.

Built so that the published weights fit name by name; which layers and sizes it has, its configuration says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class _Layer(nn.Module):
    """Self-attention, then two convolutions over time, each added and normalised."""

    def __init__(self, size: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(size, heads, batch_first=True)
        self.conv1 = nn.Conv1d(size, size, kernel, padding=(kernel - 1) // 2)
        self.conv2 = nn.Conv1d(size, size, 1)
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.self_attn(x, x, x, need_weights=False)[0])
        inner = self.conv2(torch.relu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return self.norm2(x + inner)


class _Position(nn.Module):
    pe: Tensor

    def __init__(self, size: int, longest: int = 5000) -> None:
        super().__init__()
        place = torch.arange(longest)[:, None] * torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))
        pe = torch.stack([place.sin(), place.cos()], dim=2).reshape(longest, size)
        self.register_buffer("pe", pe[None])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:, : x.shape[1]]


class _Stack(nn.Module):
    def __init__(self, layers: int, size: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(size, heads, kernel) for _ in range(layers))


class MaskedProsodyModel(nn.Module):
    """Parameters as in its configuration file: bins, n_layers, n_heads, kernel_size, filter_size."""

    def __init__(
        self, bins: int = 128, n_layers: int = 8, n_heads: int = 2, kernel_size: int = 7, filter_size: int = 256
    ) -> None:
        super().__init__()
        self.pitch_embedding = nn.Embedding(bins + 2, filter_size)
        self.energy_embedding = nn.Embedding(bins + 2, filter_size)
        self.vad_embedding = nn.Embedding(4, filter_size)
        self.positional_encoding = _Position(filter_size)
        self.transformer = _Stack(n_layers, filter_size, n_heads, kernel_size)
        self.output_pitch = nn.Sequential(nn.Linear(filter_size, bins))
        self.output_energy = nn.Sequential(nn.Linear(filter_size, bins))
        self.output_vad = nn.Sequential(nn.Linear(filter_size, 1))

    def hidden(self, tokens: Tensor, layer: int) -> Tensor:
        """Frames (batch, time, filter_size) after layer ``layer``, counted from 0, of tokens (batch, 3, time)."""
        x = self.pitch_embedding(tokens[:, 0]) + self.energy_embedding(tokens[:, 1]) + self.vad_embedding(tokens[:, 2])
        x = self.positional_encoding(x)
        for module in self.transformer.layers[: layer + 1]:
            x = module(x)
        return x


def load(config: Mapping[str, Any], weights: Any) -> MaskedProsodyModel:
    """The model of a configuration with its weights (a path to a state dictionary; nothing else of it is read)."""
    known = ("bins", "n_layers", "n_heads", "kernel_size", "filter_size")
    model = MaskedProsodyModel(**{k: int(config[k]) for k in known if k in config})
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return model.eval()

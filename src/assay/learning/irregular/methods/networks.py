"""Five networks for irregular series.

Each is called with values [b, T, c] (0 where missing), mask [b, T, c], times [b, T] and which
columns belong to the series [b, T], and returns (logits, what to add to the loss).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def deltas(times: Tensor, mask: Tensor) -> Tensor:
    """Time since each channel was last seen, [b, T, c], in units of an even step (times run from 0 to 1)."""
    step = torch.diff(times, dim=1, prepend=times[:, :1]) * max(1, times.shape[1] - 1)
    out = [torch.zeros_like(mask[:, 0])]
    for t in range(1, mask.shape[1]):
        out.append(step[:, t, None] + (1 - mask[:, t - 1]) * out[-1])
    return torch.stack(out, 1)


class GRUD(nn.Module):
    """Gated recurrent unit with trainable decay of inputs towards their mean and of the state. Che et al. 2018."""

    def __init__(self, channels: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(2 * channels, hidden)
        self.input_decay = nn.Parameter(torch.full((channels,), 0.1))
        self.input_bias = nn.Parameter(torch.zeros(channels))
        self.state_decay = nn.Linear(channels, hidden)
        self.out = nn.Linear(hidden, classes)
        self.hidden = hidden

    def forward(self, x: Tensor, mask: Tensor, times: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        d = deltas(times, mask)
        keep = torch.exp(-F.relu(self.input_decay * d + self.input_bias))
        state_keep = torch.exp(-F.relu(self.state_decay(d)))
        h = x.new_zeros(len(x), self.hidden)
        last = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            m = mask[:, t]
            last = m * x[:, t] + (1 - m) * last
            # Standardised channels have mean 0, so decayed values go to 0.
            seen = m * x[:, t] + (1 - m) * keep[:, t] * last
            new = self.cell(torch.cat([seen, m], 1), state_keep[:, t] * h)
            on = valid[:, t, None]
            h = on * new + (1 - on) * h
        return self.out(h), x.new_zeros(())


class RITS(nn.Module):
    """One direction of BRITS: recurrent imputation from history and from the other channels."""

    off_diagonal: Tensor

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(2 * channels, hidden)
        self.state_decay = nn.Linear(channels, hidden)
        self.input_decay = nn.Parameter(torch.full((channels,), 0.1))
        self.history = nn.Linear(hidden, channels)
        self.features = nn.Linear(channels, channels)
        self.mix = nn.Linear(2 * channels, channels)
        self.register_buffer("off_diagonal", 1 - torch.eye(channels))
        self.hidden = hidden

    def forward(self, x: Tensor, mask: Tensor, times: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d = deltas(times, mask)
        state_keep = torch.exp(-F.relu(self.state_decay(d)))
        beta = torch.sigmoid(self.mix(torch.cat([torch.exp(-F.relu(self.input_decay * d)), mask], -1)))
        weight = self.features.weight * self.off_diagonal
        h = x.new_zeros(len(x), self.hidden)
        c = torch.zeros_like(h)
        loss = x.new_zeros(())
        filled = []
        for t in range(x.shape[1]):
            m = mask[:, t]
            h = h * state_keep[:, t]
            guess = self.history(h)
            mixed = m * x[:, t] + (1 - m) * guess
            other = F.linear(mixed, weight, self.features.bias)
            joint = beta[:, t] * other + (1 - beta[:, t]) * guess
            error = (x[:, t] - guess).abs() + (x[:, t] - other).abs() + (x[:, t] - joint).abs()
            loss = loss + (error * m).sum() / (m.sum() + 1e-5)
            now = m * x[:, t] + (1 - m) * joint
            filled.append(now)
            new_h, new_c = self.cell(torch.cat([now, m], 1), (h, c))
            on = valid[:, t, None]
            h, c = on * new_h + (1 - on) * h, on * new_c + (1 - on) * c
        return h, torch.stack(filled, 1), loss / x.shape[1]


class BRITS(nn.Module):
    """Bidirectional recurrent imputation, the two last states classified. Cao et al. 2018."""

    def __init__(self, channels: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.ahead, self.back = RITS(channels, hidden), RITS(channels, hidden)
        self.out = nn.Linear(2 * hidden, classes)

    def forward(self, x: Tensor, mask: Tensor, times: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        h, filled, loss = self.ahead(x, mask, times, valid)
        turned = (times[:, -1:] - times).flip(1)
        g, other, more = self.back(x.flip(1), mask.flip(1), turned, valid.flip(1))
        agree = ((filled - other.flip(1)).abs() * valid[..., None]).mean()
        return self.out(torch.cat([h, g], 1)), 0.1 * (loss + more + 0.1 * agree)


def position(length: int, width: int) -> Tensor:
    """Sinusoidal positions [length, width]."""
    at = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
    return torch.stack([at.sin(), at.cos()], -1).flatten(1)[:, :width]


class Attention(nn.Module):
    """Self-attention layer with a diagonal mask (a step may not look at itself) and a feed-forward part."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.inner = 64
        self.qkv = nn.Linear(width, 3 * heads * self.inner)
        self.join = nn.Linear(heads * self.inner, width)
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width), nn.Dropout(dropout))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
        b, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, length, 3, self.heads, self.inner).permute(2, 0, 3, 1, 4)
        score = (q @ k.transpose(-1, -2)) / math.sqrt(self.inner)
        weight = torch.softmax(score.masked_fill(~allowed[:, None], -1e9), -1)
        x = x + self.drop(self.join((self.drop(weight) @ v).transpose(1, 2).flatten(2)))
        return x + self.feed(self.norm2(x)), weight.mean(1)


class SAITS(nn.Module):
    """Two diagonally masked attention blocks that impute, and a head on the pooled state. Du et al. 2023."""

    def __init__(self, channels: int, classes: int, length: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2 * channels, width), nn.Linear(2 * channels, width)
        self.blocks = nn.ModuleList(nn.ModuleList(Attention(width, 4, 128, 0.1) for _ in range(2)) for _ in range(2))
        self.imputed, self.again = nn.Linear(width, channels), nn.Linear(width, channels)
        self.weigh = nn.Linear(length + channels, channels)
        self.register_buffer("position", position(length, width))
        self.out = nn.Linear(width, classes)

    def _block(self, which: int, h: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
        weight = h
        for layer in self.blocks[which]:  # type: ignore[union-attr]
            h, weight = layer(h, allowed)
        return h, weight

    def forward(self, x: Tensor, mask: Tensor, times: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        length = x.shape[1]
        other = ~torch.eye(length, dtype=torch.bool)
        allowed = other[None] & valid.bool()[:, None, :]
        h, _ = self._block(0, self.first(torch.cat([x, mask], -1)) + self.position, allowed)
        one = self.imputed(h)
        filled = mask * x + (1 - mask) * one
        g, weight = self._block(1, self.second(torch.cat([filled, mask], -1)) + self.position, allowed)
        two = self.again(g)
        share = torch.sigmoid(self.weigh(torch.cat([weight, mask], -1)))
        joint = (1 - share) * one + share * two
        seen = mask.sum() + 1e-5
        loss = sum(((guess - x).abs() * mask).sum() / seen for guess in (one, two, joint)) / 3
        on = valid[..., None]
        return self.out((g * on).sum(1) / on.sum(1).clamp(min=1)), 0.1 * loss  # type: ignore[operator]


class TimesBlock(nn.Module):
    """Folds a series by its strongest periods and convolves each picture with several kernels."""

    def __init__(self, width: int, inner: int, kernels: int, top: int) -> None:
        super().__init__()
        self.top = top
        self.wide = nn.ModuleList(nn.Conv2d(width, inner, 2 * k + 1, padding=k) for k in range(kernels))
        self.narrow = nn.ModuleList(nn.Conv2d(inner, width, 2 * k + 1, padding=k) for k in range(kernels))

    def forward(self, x: Tensor) -> Tensor:
        b, length, width = x.shape
        strength = torch.fft.rfft(x, dim=1).abs()
        spectrum = strength.mean((0, 2)).detach().clone()
        spectrum[0] = 0
        chosen = torch.topk(spectrum, min(self.top, len(spectrum))).indices.tolist()
        found = []
        for frequency in chosen:
            period = max(1, length // max(1, frequency))
            rows = -(-length // period)
            padded = F.pad(x, (0, 0, 0, rows * period - length))
            picture = padded.view(b, rows, period, width).permute(0, 3, 1, 2)
            inner = F.gelu(torch.stack([layer(picture) for layer in self.wide], -1).mean(-1))
            outer = torch.stack([layer(inner) for layer in self.narrow], -1).mean(-1)
            found.append(outer.permute(0, 2, 3, 1).reshape(b, -1, width)[:, :length])
        weight = torch.softmax(strength.mean(2)[:, chosen], -1)
        return x + (torch.stack(found, -1) * weight[:, None, None, :]).sum(-1)


class TimesNet(nn.Module):
    """Two blocks of folded convolutions. Wu et al. 2023."""

    def __init__(self, channels: int, classes: int, length: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Conv1d(2 * channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(TimesBlock(width, 128, 3, 3) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.register_buffer("position", position(length, width))
        self.out = nn.Linear(width * length, classes)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor, times: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        h = self.embed(torch.cat([x, mask], -1).transpose(1, 2)).transpose(1, 2) + self.position
        for block, norm in zip(self.blocks, self.norms):
            h = norm(block(h))
        return self.out(self.drop(F.gelu(h) * valid[..., None]).flatten(1)), x.new_zeros(())


class Raindrop(nn.Module):
    """Messages between channels over a learnt graph at each time stamp, then attention over time. Zhang et al. 2022."""

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        self.units = width
        self.embed = nn.Parameter(torch.randn(channels, width) * 0.3)
        self.source, self.target = nn.Parameter(torch.randn(channels, 8)), nn.Parameter(torch.randn(channels, 8))
        self.message = nn.Linear(width, width)
        total = channels * width + 16
        total += total % 2
        self.pad = total - channels * width - 16
        layer = nn.TransformerEncoderLayer(total, 2, 256, 0.3, batch_first=True)
        self.time = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(total + channels, classes)

    def forward(self, x: Tensor, mask: Tensor, times: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(x[..., None] * self.embed) * mask[..., None]
        graph = torch.softmax(self.source @ self.target.T / math.sqrt(8), -1)
        # A channel that is not seen at a stamp sends nothing, and receives from those that are.
        h = h + torch.einsum("ij,btjw->btiw", graph, F.relu(self.message(h)) * mask[..., None])
        scale = torch.exp(torch.arange(8, device=x.device) * (-math.log(100.0) / 8)) * 100
        clock = times[..., None] * scale
        h = torch.cat([h.flatten(2), clock.sin(), clock.cos()], -1)
        h = self.time(F.pad(h, (0, self.pad)), src_key_padding_mask=~valid.bool())
        on = valid[..., None]
        count = on.sum(1).clamp(min=1)
        return self.out(torch.cat([(h * on).sum(1) / count, (mask * on).sum(1) / count], 1)), x.new_zeros(())


def grud(channels: int, classes: int, length: int, hidden: int | None) -> nn.Module:
    """GRU-D, 256 hidden units unless told otherwise."""
    return GRUD(channels, classes, hidden or 256)


def brits(channels: int, classes: int, length: int, hidden: int | None) -> nn.Module:
    """BRITS, 256 hidden units."""
    return BRITS(channels, classes, hidden or 256)


def saits(channels: int, classes: int, length: int, hidden: int | None) -> nn.Module:
    """SAITS: 2 layers a block, width 256, 4 heads of 64, 128 feed-forward units, dropout 0.1."""
    return SAITS(channels, classes, length, hidden or 256)


def timesnet(channels: int, classes: int, length: int, hidden: int | None) -> nn.Module:
    """TimesNet: 2 layers, top 3 periods, width 64, 128 inner units, 3 kernels."""
    return TimesNet(channels, classes, length, hidden or 64)


def raindrop(channels: int, classes: int, length: int, hidden: int | None) -> nn.Module:
    """Raindrop: 2 layers, 4 units a channel, 256 feed-forward units, 2 heads, dropout 0.3."""
    return Raindrop(channels, classes, hidden or 4)

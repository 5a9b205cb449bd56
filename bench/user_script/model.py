"""A small decoder of characters, as people keep one beside their training script."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """One layer: causal attention, then a feed-forward network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, of the shape (batch, length, width) of `x`."""
        batch, length, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.before_network(x))


class Decoder(nn.Module):
    """The model."""

    def __init__(self, vocabulary: int, length: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss of predicting `y` from `x`, both of the shape (batch, length)."""
        places = torch.arange(x.shape[1], device=x.device)
        logits = self.head(self.norm(self.layers(self.tokens(x) + self.places(places))))
        return functional.cross_entropy(logits.flatten(0, 1), y.flatten())

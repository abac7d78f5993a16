"""A batch that OpenVINO traces: inputs of one width, with padding."""

import torch
from torch import Tensor

from models.architectures.kernels.attention import Group, Layout, TokenRows


class EqualRows(TokenRows):
    """The tokens of inputs of one width, in operations that can be traced for any number of inputs
    and any width.
    """

    def __init__(self, token_ids: Tensor, token_types: Tensor, is_token: Tensor) -> None:
        """Takes int[b, n] ids and token types, and bool[b, n]. In a trace, b and n are
        variables.
        """
        count, length = token_ids.shape
        self.layout, self.count, self.rows = Layout(), count, count * length
        self.padding = self.first_padding = 0
        self.token_ids, self.token_types = token_ids.reshape(-1), token_types.reshape(-1)
        self.positions = ((is_token.int().cumsum(1) - 1) * is_token).reshape(-1)
        self.first = torch.arange(count) * length
        self.groups = (Group(0, count, length, is_token),)

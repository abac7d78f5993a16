"""The scores of a stage mixed with those of the stage before."""

import math
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np

from beamrank.ranking.aggregation import Scores

Normalization = Literal["minmax", "zscore", "none"]


class Combine(NamedTuple):
    """How a stage mixes both scores of the docs of a query: `weight` is that of its own."""

    weight: float
    normalize: Normalization

    def mix(self, own: Scores, before: Scores) -> Scores:
        """The sum of weight * norm(own) and (1 - weight) * norm(before), float64[n]."""
        mine, theirs = (normalized(scores, self.normalize) for scores in (own, before))
        return np.asarray(self.weight * mine + (1 - self.weight) * theirs)


def normalized(scores: Scores, method: Normalization) -> Scores:
    """Scores from 0 to 1, or with mean 0 and standard deviation 1; equal ones are 0. float64[n].

    Sums are exactly rounded (`fmean`), so that every machine gives the same bits.
    """
    if method == "none" or not len(scores):
        return scores
    spread = scores.max() - scores.min()
    if not spread:
        return np.zeros_like(scores)
    # Squares of these neither overflow nor vanish.
    scaled = np.asarray((scores - scores.min()) / spread)
    if method == "minmax":
        return scaled
    centred = scaled - fmean(scaled.tolist())
    return np.asarray(centred / math.sqrt(fmean((centred * centred).tolist())))

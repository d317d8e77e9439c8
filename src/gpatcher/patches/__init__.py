"""Extractors: for each node, itself and the nodes most relevant to it."""

from gpatcher.patches.base import Extractor, Patches
from gpatcher.patches.extract import EXTRACTORS, AutoExtractor, extract_patches, make_extractor
from gpatcher.patches.hop import Hop
from gpatcher.patches.overlap import Overlap
from gpatcher.patches.polynomial import PolynomialFilter
from gpatcher.patches.ppr import PPR
from gpatcher.patches.spectral import AdaptiveFilter, BandpassFilter, HeatKernel, SharedFilter

__all__ = [
    "EXTRACTORS",
    "PPR",
    "AdaptiveFilter",
    "AutoExtractor",
    "BandpassFilter",
    "Extractor",
    "HeatKernel",
    "Hop",
    "Overlap",
    "Patches",
    "PolynomialFilter",
    "SharedFilter",
    "extract_patches",
    "make_extractor",
]

"""The model: encode, gather, mix, classify."""

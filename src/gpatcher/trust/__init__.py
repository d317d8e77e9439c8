"""How far to trust a model: calibration, conformal sets, explanations."""

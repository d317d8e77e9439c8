"""Nested parameters with scikit-learn's names, such as ``train__lr``."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Self

from sklearn.base import BaseEstimator

from gpatcher.errors import InputError


class NestedParameters(BaseEstimator):  # type: ignore[misc]
    """An estimator whose parameters may be frozen dataclasses."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep`` also those of nested configurations, such as ``train__lr``."""
        parameters: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for part, value in list(parameters.items()):
                if is_dataclass(value):
                    parameters |= {f"{part}__{field.name}": getattr(value, field.name) for field in fields(value)}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters, nested ones as in ``train__lr``; if one is invalid, none is set."""
        own = super().get_params(deep=False)
        changed = {name: value for name, value in parameters.items() if "__" not in name}
        nested: dict[str, dict[str, Any]] = {}
        for key, value in parameters.items():
            part, separator, name = key.partition("__")
            if part not in own:
                raise InputError(f"{type(self).__name__} has no parameter {key}; it has {', '.join(own)}")
            if separator:
                nested.setdefault(part, {})[name] = value
        for part, values in nested.items():
            current = changed.get(part, own[part])
            valid = [field.name for field in fields(current)] if is_dataclass(current) else []
            unknown = [name for name in values if name not in valid]
            if unknown:
                raise InputError(
                    f"{type(self).__name__} has no parameter {part}__{unknown[0]}; {part}={current!r} has "
                    f"{', '.join(valid) or 'no parameters of its own'}"
                )
            changed[part] = replace(current, **values)
        for name, value in changed.items():
            setattr(self, name, value)
        return self

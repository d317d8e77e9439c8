"""Nested parameters with scikit-learn's names, such as ``train__lr``."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from inspect import signature
from typing import Any, ClassVar, Self

from gpatcher.errors import InputError


class NestedParameters:
    """An estimator of scikit-learn whose parameters may be frozen dataclasses.

    scikit-learn asks for parameters, tags and `__sklearn_is_fitted__`, not for its class ``BaseEstimator``, whose
    import takes as long as that of torch: a model that only predicts does without it.
    """

    _estimator_type: ClassVar[str]  # what scikit-learn before 1.6 asks for instead of tags

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep`` also those of nested configurations, such as ``train__lr``."""
        parameters = {name: getattr(self, name) for name in signature(type(self)).parameters}
        if deep:
            for part, value in list(parameters.items()):
                if is_dataclass(value):
                    parameters |= {f"{part}__{field.name}": getattr(value, field.name) for field in fields(value)}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters, nested ones as in ``train__lr``; if one is invalid, none is set."""
        own = self.get_params(deep=False)
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

    def __repr__(self) -> str:
        defaults = signature(type(self)).parameters
        given = self.get_params(deep=False).items()
        changed = [f"{name}={value!r}" for name, value in given if repr(value) != repr(defaults[name].default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

        of_classes = self._estimator_type == "classifier"
        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if of_classes else None,
            regressor_tags=None if of_classes else RegressorTags(),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "split_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")

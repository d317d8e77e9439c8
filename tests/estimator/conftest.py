import pytest

from gpatcher.datasets.synthetic import csbm
from gpatcher.estimator.classifier import GPatcherClassifier


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def graph():
    return csbm(phi=-0.5, n=80, features=6)


@pytest.fixture
def quick():
    """Make small classifiers: the name of an extractor or the settings of several, and changes per section."""

    def make(name="ppr", *, patches=None, features=None, model=None, train=None, **parameters):
        settings = {
            "patches": {"name": name, "size": 4, "K": 4, **(patches or {})} if isinstance(name, str) else list(name),
            "features": features or {},
            "model": {"hidden": 8, "mixer_hidden": 4, **(model or {})},
            "train": {"epochs": 4, **(train or {})},
        }
        return GPatcherClassifier.from_settings(settings, **parameters)

    return make

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data sets; tests that need it skip where there is none."""
    folder = os.environ.get("GPATCHER_DATA")
    if not folder:
        pytest.skip("GPATCHER_DATA is not set: no real data sets to test on")
    return Path(folder)

import os
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data sets; tests that need it skip where there is none."""
    folder = os.environ.get("GPATCHER_DATA")
    if not folder:
        pytest.skip("GPATCHER_DATA is not set: no real data sets to test on")
    return Path(folder)


@pytest.fixture(scope="session")
def loopback_only() -> list[str]:
    """A command prefix that runs in a network of its own: Ray listens on every interface that there is."""
    pytest.importorskip("ray")
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("unshare or ip is not installed: no network namespace for a cluster")
    prefix = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not permitted here")
    return prefix

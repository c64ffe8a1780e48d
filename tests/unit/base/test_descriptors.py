"""Descriptors are shared between files and connections, so that neither starves the other."""

import resource
import subprocess
import sys

import pytest

from anabranch.base.descriptors import share


@pytest.mark.parametrize(
    ("limit", "max_files", "files", "connections"),
    [
        (1 << 20, 4096, 4096, 522_183),
        (20_000, 4096, 4096, 7895),
        (1024, 4096, 512, 199),
        (200, 64, 64, 11),
        (100, 64, 50, 1),
    ],
)
def test_shares(limit: int, max_files: int, files: int, connections: int) -> None:
    assert share(limit, max_files, 50) == (files, connections)


def test_the_soft_limit_is_raised() -> None:
    script = (
        "import resource; from anabranch.base.descriptors import claim_descriptors;"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard));"
        "print(claim_descriptors(4096, 50).files, resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard)"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(min(4096, hard // 2)), "True"]

"""Build entry point: the package list, and the compiled attention where there is a compiler
for it.
"""

import platform
import sys

from setuptools import Extension, find_packages, setup

ROOTS = ("beamrank", "models", "transforms", "pipelines", "contrib")
KERNELS = "models/architectures/kernels"

# No option for a processor: the library chooses its instructions as it runs. Without it, torch
# computes attention.
attention = Extension(
    f"{KERNELS.replace('/', '.')}._attention",
    [f"{KERNELS}/attention.cpp"],
    language="c++",
    extra_compile_args=["-std=c++17", "-O3", "-g0"],
    optional=True,
)

setup(
    packages=find_packages(include=[pattern for root in ROOTS for pattern in (root, f"{root}.*")]),
    ext_modules=[attention] if sys.platform == "linux" and platform.machine() == "x86_64" else [],
)

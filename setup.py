"""Build entry point: the package list only."""

from setuptools import find_packages, setup

ROOTS = ("beamrank", "models", "transforms", "pipelines", "contrib")

setup(packages=find_packages(include=[pattern for root in ROOTS for pattern in (root, f"{root}.*")]))

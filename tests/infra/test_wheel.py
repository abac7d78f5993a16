import runpy

from tests import ROOT


def test_wheel_ships_no_experiments_benchmarks_or_tests(monkeypatch):
    given: dict[str, list[str]] = {}
    monkeypatch.setattr("setuptools.setup", given.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    assert {package.split(".")[0] for package in given["packages"]} == {"beamrank", "models", "transforms", "pipelines"}

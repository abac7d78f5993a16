# Everything a fresh machine needs is Python 3.11 to 3.13 and make; the virtual environment holds the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# `make demo` installs what users have; the other targets also install what developers need.
USED := $(VENV)/.ready
READY := $(VENV)/.ready-dev
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
LOCK := requirements/python$(VERSION).txt
# Many containers set it: then each process of the tests, and there are hundreds, compiles torch and Beam again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo docs test test-all test-protocol check lint lock bench bench-engine clean

help:  ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(USED): WHAT = .
$(READY): WHAT = .[dev]
$(USED) $(READY): pyproject.toml setup.py $(wildcard requirements/*.txt)
	@test -f $(LOCK) || \
		{ echo "beamrank needs Python 3.11, 3.12 or 3.13, not $(VERSION); give one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# uv takes half a minute, pip minutes; pip installs where uv cannot, such as from an index that only pip is told of.
	{ $(BIN)/python -m pip install --quiet --constraint $(LOCK) uv \
		&& $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint $(LOCK) --editable '$(WHAT)'; } \
		|| $(BIN)/python -m pip install --quiet --no-compile --constraint $(LOCK) --editable '$(WHAT)'
	touch $(USED) $@

setup: $(READY)  ## Make the virtual environment from the locked dependencies

docs: $(READY)  ## Write the generated pages and build the documentation into build/site
	$(BIN)/python -m docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

demo: $(USED)  ## Run the whole cascade on the standard library's documentation
	$(BIN)/beamrank demo

# Two processes: each may take 4 GB. mypy checks while the first tests run.
define run_tests
	types=$$(mktemp); $(BIN)/mypy > $$types & mypy=$$!; \
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal $(1) $(PYTEST_FLAGS); passed=$$?; \
	wait $$mypy || passed=1; cat $$types; rm $$types; exit $$passed
endef

test: lint  ## Run ruff, mypy, import-linter and the quick tests (minutes)
	$(call run_tests,-m "not slow")

test-all: lint  ## Run ruff, mypy, import-linter and all tests (over an hour)
	@# Engines come over the network while the first tests run.
	$(BIN)/python -m tests.support.services.get_engines & trap "kill $$! 2>/dev/null" EXIT; $(call run_tests)

test-protocol: $(READY)  ## Search every state of the commit protocol's model, and run 20,000 random schedules of its code
	BEAMRANK_SCHEDULES=1300 $(BIN)/python -m pytest tests/protocol --numprocesses=2 --dist=worksteal $(PYTEST_FLAGS)

check: lint  ## Run ruff, mypy and import-linter
	$(BIN)/mypy

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

lock: $(READY)  ## Resolve the dependencies again, for every Python
	for version in 3.11 3.12 3.13; do \
		$(BIN)/uv pip compile pyproject.toml --all-extras --python-version $$version --no-header --no-annotate \
			--python-platform x86_64-manylinux_2_28 --quiet --upgrade --output-file requirements/python$$version.txt; \
	done

bench-engine: $(READY)  ## Compare the engine with its peers and with its earlier ratios: 3 minutes with AMX, 12 without
	$(BIN)/python -m benchmarks.engine.guard

bench: $(READY)  ## Measure, and write benchmarks/results
	$(BIN)/python -m benchmarks

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

# Each command installs what it needs into .venv, the first time, from the pinned versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
RUN := $(BIN)/python
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-fast check format docs bench clean

demo: .venv/cli
	$(BIN)/inlier reproduce regression --preset cpu

test: .venv/installed
	$(RUN) -m pytest -n 2 --dist worksteal

test-fast: .venv/installed
	$(RUN) -m pytest -n 2 --dist worksteal -m "not slow"

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .venv/bench
	$(RUN) -m benchmarks $(if $(QUICK),--quick)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build site

# The demo needs little; tests and checks need every framework that they try.
.venv/cli: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install torch==2.13.0
	$(PIP) install --editable ".[cli]"
	touch $@

.venv/installed: .venv/cli
	$(PIP) install --editable ".[check]"
	touch $@

.venv/bench: .venv/installed
	$(PIP) install --editable ".[bench]"
	touch $@

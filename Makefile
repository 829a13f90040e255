# Each target works from a fresh clone: it makes .venv, installs, and runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint format docs release-check clean

demo: $(VENV)/.installed
	$(BIN)/paircaps demo

# Three processes for two cores and one thread a process, since tests wait for other processes, sockets and pages a third of
# their time. Tests of one file share their fixtures.
WORKERS = $(shell $(BIN)/python -c "import os; print((3 * os.cpu_count() + 1) // 2)")
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The site of README, guides, reference and tutorials, which are executed. Open build/site/index.html. A warning is an error.
docs: $(VENV)/.installed-dev
	rm -rf build/site
	PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going \
		--doctree-dir build/doctrees --fresh-env -c docs . build/site

# What a release publishes, in build/dist: a wheel and an sdist that install into a clean environment and work there. In a
# release TAG is its tag, which must be v and the version.
release-check: $(VENV)/.installed-dev
	$(BIN)/python .ci/release_check.py $(if $(TAG),--tag "$(TAG)")

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[serve]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed

# Two commands: `make train` and `make test`. Both set up a .venv first if there is none. `make docs`
# builds the documentation as a site.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
JOBS ?= 2

.PHONY: setup train test test-full lint bench bench-full docs clean

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Rondel needs Python 3.11 or newer; this is %d.%d. Name another: make PYTHON=python3.12 …" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "Setting up .venv, about a minute."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $(READY)

train: $(READY)
	$(BIN)/rondel train ppo CartPole-v1 --steps 500000 --until-return 475

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n $(JOBS) -m 'not long'

test-full: lint
	$(BIN)/pytest -n $(JOBS)

bench: $(READY)
	$(BIN)/python benchmarks/scoreboard/run.py

bench-full: $(READY)
	$(BIN)/python benchmarks/scoreboard/run.py --full

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache site

# Each target sets up what it needs; `setup` is quick when nothing changed.
# The distribution's Python is built with profile-guided optimisation, one compiled by a version manager often is not
# and then a third slower: so the former is preferred where it is new enough.
# One that can make virtual environments goes before one that must be taught to first.
PYTHON ?= $(shell for needed in ensurepip sys; do for p in /usr/bin/python3 python3; do \
	$$p -c "import $$needed, sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && echo $$p && exit; done; done)
PYTHON := $(or $(PYTHON),python3)
VENV := .venv
BIN := $(VENV)/bin
# Nodes start in a third of the time when their byte code is there.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup java demo test lint bench bench-full chaos sim interop docs clean

help:
	@echo "make setup       the virtual environment with everything in it; the other targets do it by themselves"
	@echo "make demo        a Spark pipeline on a node: watched, killed, started again, its sums checked"
	@echo "make test        every check: lint, types, import contracts, tests"
	@echo "make lint        ruff, mypy, import contracts"
	@echo "make bench       tables and pictures of the ratios beside Apache Kafka (needs Java and Maven; says so without); hours"
	@echo "make bench-full  the full grid"
	@echo "make chaos       kills, full disks, slow clients, cut links, on one node and on three and five, at length"
	@echo "make sim         10,000 simulated clusters, each with faults, load and every promise checked (SEEDS=… for others)"
	@echo "make interop     clients of other languages, Kafka's tools, Kafka as the oracle (says which toolchains are missing)"
	@echo "make docs        the generated reference pages"

setup: $(VENV)/.stamp $(VENV)/.tools

$(VENV)/.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Barnabas needs Python 3.11 or newer: set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m tools.prerequisites venv
	@echo "setting up $(VENV), which takes a minute or two"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Kafka's tools under Kafka's names. Where Apache Kafka's own are on the PATH, those stay in front.
$(VENV)/.tools: $(VENV)/.stamp src/barnabas/cli/kafka/catalogue.py src/barnabas/cli/kafka/scripts/script_files.py
	@$(BIN)/barnabas kafka install $(BIN) || echo "(so Kafka's tools are run by \`$(BIN)/barnabas kafka NAME\`)"
	@touch $@

# Spark runs on Java: found, installed where that is possible, or asked for in one line.
java: setup
	@$(BIN)/python -m tools.prerequisites java

demo: java
	@$(BIN)/python -m examples.demo

test: java lint
	@$(BIN)/python -m pytest --numprocesses 4 --no-loadscope-reorder -m "not kafka"

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# A table with a run that failed does not cost the others. `python -m bench publish --newest` then shows all of them.
bench: java
	@failed=; for table in "" upkeep clusters pipelines kit; do $(BIN)/python -m bench $$table || failed=yes; done; test -z "$$failed"

bench-full: setup
	@$(BIN)/python -m bench --full

chaos: java
	@$(BIN)/python -m pytest tests/chaos tests/wire/test_fuzz.py --chaos=full

# Two hours on two cores at the most: 1.4 s of CPU for a seed.
SEEDS ?= 10000
sim: setup
	@$(BIN)/barnabas simulate --seeds $(SEEDS)

interop: setup
	@$(BIN)/python -m interop
	@$(BIN)/python -m pytest tests -m kafka --numprocesses 2 --no-loadscope-reorder -rs

docs: setup
	@$(BIN)/python -m tools.make_config_page
	@$(BIN)/python -m tools.draw_rooms
	@$(BIN)/python -m tools.make_dashboards

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# `make` or `make help` lists what can be done.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || echo python3)
STAMP := $(VENV)/.installed
MYSQL_ROOT := .mysql/root
CLASSES := $(VENV)/spark-classes.jsa

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

.PHONY: setup
setup: $(STAMP) ## Make .venv with everything in it, and see to Java
	@scripts/system-packages java

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/pip || { scripts/system-packages venv $(PYTHON) && $(PYTHON) -m venv $(VENV); }
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^uv==' requirements.lock)"
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -r requirements.lock \
		|| $(BIN)/pip install --quiet -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

.PHONY: demo
demo: setup ## See it find a wrong row, in a minute, without a database server
	$(BIN)/truecopy demo

##@ Develop

.PHONY: servers
servers: ## Install MariaDB, PostgreSQL, Redis, memcached and Chromium for the tests, where they are missing
	@scripts/system-packages servers

# Two processes, each with servers of its own; tests of a module share what they have started.
IN_TWO = SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=$(abspath $(CLASSES)) -XX:TieredStopAtLevel=1" \
	$(BIN)/pytest -n 2 --dist loadscope

.PHONY: test
test: setup servers lint $(CLASSES) ## Lint, then the tests, against real servers
	$(IN_TWO) -m "not slow and not long"

.PHONY: long
long: setup servers $(CLASSES) ## The tests that take ten seconds or more, each
	$(IN_TWO) -m "long and not slow"

# Some hundred JVMs are started by the tests and live for seconds: what each would do at first is kept.
$(CLASSES): $(STAMP)
	@rm -f $@
	@SPARK_SUBMIT_OPTS="-XX:ArchiveClassesAtExit=$(abspath $@)" $(BIN)/python -m tests.spark_classes > /dev/null

.PHONY: lint
lint: setup ## Style, types, the direction of imports, dependencies
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry src

.PHONY: format
format: setup ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: mysql
ifdef TRUECOPY_MYSQLD
mysql: setup ## The tests that need MySQL itself; TRUECOPY_MYSQLD=/path/to/mysqld, or one is fetched
	$(BIN)/pytest -m mysql
else
mysql: setup $(MYSQL_ROOT)
	TRUECOPY_MYSQLD=chroot:$(abspath $(MYSQL_ROOT)) $(BIN)/pytest -m mysql
endif

$(MYSQL_ROOT):
	scripts/fetch-mysql $@

.PHONY: soak
soak: setup servers ## The tests that take minutes, each
	$(BIN)/pytest -m slow --timeout 3600

.PHONY: bench
bench: setup servers ## Measure; prints a line per figure: name, value, goal, ok or short
	$(BIN)/python -m bench.verify
	$(BIN)/python -m bench.stream
	$(BIN)/python -m bench.transfer
	$(BIN)/python -m bench.queries
	$(BIN)/python -m bench.changelog
	$(BIN)/python -m bench.cache
	$(BIN)/python -m bench.validate
	$(BIN)/python -m bench.server

##@ Publish

.PHONY: docs
docs: setup ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: docs-serve
docs-serve: setup ## Show the documentation while it is written
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

.PHONY: screenshots
screenshots: setup servers ## Take the pictures of the server's pages anew, into docs/images/
	$(BIN)/python -m tests.server.screenshots docs/images

.PHONY: lock
lock: setup ## Write requirements.lock again; LOCK_FLAGS=--upgrade for newer versions
	$(BIN)/uv pip compile pyproject.toml --all-extras --python-version 3.11 --no-emit-index-url \
		--custom-compile-command "make lock" --quiet $(LOCK_FLAGS) --output-file requirements.lock

.PHONY: clean
clean: ## Remove what was made, .venv included
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache spark-warehouse metastore_db derby.log
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

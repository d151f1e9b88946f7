# make demo needs no server; make test runs everything. Both work where make, git and python3-venv are there.
DISTS := hesape-core hesape-postgres hesape-mysql hesape-redis conformance
DEMO := $(if $(wildcard .venv/ready),.venv,.venv-demo)
.DELETE_ON_ERROR:
.PHONY: demo test lint types bench torture .venv

demo: $(DEMO)/ready ; @$(DEMO)/bin/hesape demo
test: .venv/ready ; @.ci/test
lint: .venv/ready ; .venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports
types: .venv/ready ; for dist in $(DISTS); do .venv/bin/mypy $$dist || exit 1; done
bench: .venv/ready ; .venv/bin/python conformance/bench
torture: .venv/ready ; .venv/bin/hesape-conformance torture

.venv: .venv/ready
.venv/ready: constraints.txt $(DISTS:%=%/pyproject.toml)
	python3 -m venv .venv
	.venv/bin/pip install -qq -r constraints.txt
	.venv/bin/pip install -qq -c constraints.txt --no-build-isolation $(DISTS:%=-e ./%)
	.venv/bin/pip check && touch $@
.venv-demo/ready: constraints.txt hesape-core/pyproject.toml
	python3 -m venv .venv-demo
	.venv-demo/bin/pip install -qq -c constraints.txt -e ./hesape-core && touch $@

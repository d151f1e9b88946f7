# make demo needs no server; make test runs everything. Both work where make, git and python3-venv are there.
DISTS := hesape-core hesape-postgres hesape-mysql hesape-redis conformance
PYTHON := python3
DEMO := $(if $(wildcard .venv/ready),.venv,.venv-demo)
.DELETE_ON_ERROR:
.PHONY: demo test lint types bench bench-peers torture docs .venv

demo: $(DEMO)/ready ; @$(DEMO)/bin/hesape demo
test: .venv/ready ; @.ci/test
lint: .venv/ready ; .venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports
types: .venv/ready ; for dist in $(DISTS); do .venv/bin/mypy $$dist || exit 1; done
bench: .venv/ready ; @$(call measured,run)
bench-peers: .venv/ready .venv-peers/ready ; @$(call measured,peers)
torture: .venv/ready ; .venv/bin/hesape-conformance torture
docs: .venv/ready ; .venv/bin/python docs/rules_page.py && .venv/bin/mkdocs build

.venv: .venv/ready
.venv/ready: constraints.txt $(DISTS:%=%/pyproject.toml)
	$(call install,-r constraints.txt,$(DISTS))
.venv-3.%/ready: constraints.txt hesape-core/pyproject.toml conformance/pyproject.toml
	$(call install,-r constraints.txt,hesape-core conformance)
.venv-demo/ready: constraints.txt hesape-core/pyproject.toml
	$(call install,hatchling editables,hesape-core)
.venv-peers/ready: conformance/bench/peers/requirements.txt
	$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -qq -r $< && touch $@

# BENCH="postgres redis --rounds 1" chooses stores and sizes; the page is made of what was found, also of half a run
define measured
.venv/bin/python conformance/bench $(1) $(BENCH); code=$$?; .venv/bin/python conformance/bench page && exit $$code
endef

define install
$(PYTHON) -m venv $(@D)
$(@D)/bin/pip install -qq -c constraints.txt $(1)
$(@D)/bin/pip install -qq -c constraints.txt --no-build-isolation $(2:%=-e ./%)
$(@D)/bin/pip check && touch $@
endef

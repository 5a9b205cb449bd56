# make up     sets everything up, serves http://127.0.0.1:8000 and prints a one-time sign-in link
# make down   stops the platform and all its training
# make dev    the same for working on it: whatever is edited is served at once, the console from one port above
# make test   sets everything up, then runs the tests (ALL=1: all of them, not the part that a commit takes)
# make check  format, lint, types, import contracts, migrations, drift of everything generated
# make fix    formats everything, and mends what the linters can
# make coverage  which lines and branches of the Python code the tests reach (ONLY=tests/unit: those tests alone)
# make check-api  sends more requests made from the API's schema (SEED=7 EXAMPLES=300: those again)
# make test-frameworks  tests of Horovod and Megatron-LM, each in an environment of its own (ONLY=megatron: no other)
# make test-deploy      the image, docker-compose.yml and the systemd unit for real (half an hour; a Docker engine)
# make faults   makes every fault we know of happen and prints what is said of each (ONLY=name JOBS=4); make healthy runs
#               a hundred trainings with which nothing is wrong (docs/faults.md)
# make gpu-kit    fills build/gpu-kit with what the checks on a GPU need (PYTHON=3.11: of a machine with that Python, not
#               3.12); make gpu-check runs them from there, without a network (ARGS="--minutes 9 --only nvml")
# make bench  measures (ONLY="api launch": those sections, in detail; ALL=1: all of them)
# make profile  where the time of a request goes (WHAT=list)
# make schema and make lock write generated files anew; make clean removes what was built
# make check-deps   which packages have known weaknesses, and which images are named by tag only (needs the registries)
# make sbom     writes what the platform is made of to build/sbom.json, in CycloneDX's format
# make manifests  writes the chart as plain Kubernetes manifests to build/manifests.yaml
#
# Variables of `up`, `dev` and `down`: PORT=8000 HOST=127.0.0.1 DATA=var DEMO=1 WEB=auto (DEMO=0: no demo environments on
#           first start; WEB=2: that many web processes).

.PHONY: help up down dev test check fix coverage check-api check-deps test-frameworks test-deploy faults healthy \
	gpu-kit gpu-check bench profile schema lock sbom manifests clean
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Only what is given to make itself counts: shells, too, have a variable HOST.
given = $(if $(findstring command line,$(origin $1)),$(eval export $2 := $(value $1)))
$(call given,PORT,FERMI_PORT)
$(call given,HOST,FERMI_HOST)
$(call given,DATA,FERMI_DATA)
$(call given,DEMO,FERMI_DEMO)
$(call given,WEB,FERMI_WEB)
$(call given,SEED,FERMI_API_SEED)
$(call given,EXAMPLES,FERMI_API_EXAMPLES)
$(call given,ALL,FERMI_TEST_ALL)

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
# A bare version is no program: it says which Python the kit is for.
CANDIDATES := $(or $(if $(filter gpu-kit,$(MAKECMDGOALS)),$(filter-out 3.%,$(PYTHON)),$(PYTHON)),\
	.venv/bin/python python3 python3.11 python3.12 python3.13 python3.14 python)
FOUND := $(shell for python in $(CANDIDATES); do \
	$$python -ISc '$(NEW_ENOUGH)' 2>/dev/null && echo $$python && break; done)
RUN = $(if $(FOUND),$(FOUND),$(error Fermi needs Python 3.11 or newer and found none among \
	"$(CANDIDATES)": install it, or name it with PYTHON=/path/to/python3.12))
SETUP = $(RUN) scripts/setup.py

help:
	@sed -n '/^$$/q;s/^#  *//p' Makefile

up:
	@$(SETUP) up

down:
	@$(SETUP) down

test:
	@$(SETUP) test

check:
	@$(SETUP) check

dev fix coverage check-api check-deps test-frameworks test-deploy faults healthy schema lock manifests:
	@$(SETUP) $@

gpu-kit:
	@$(SETUP) gpu-kit $(filter 3.%,$(PYTHON))

gpu-check:
	@$(RUN) scripts/gpu_check.py $(ARGS)

bench:
	@$(SETUP) bench $(ONLY) $(if $(ALL),--all) $(if $(KEEP),--keep '$(KEEP)')

sbom:
	@$(RUN) scripts/sbom.py

profile:
	@$(SETUP) profile '$(or $(WHAT),list)'

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build frontend/node_modules frontend/dist

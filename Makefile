# The two commands are `make book` and `make test`; `make help` lists the rest.
# Each makes or brings up to date .venv first. Only make, git and a Python are needed.

# Which Python makes .venv: `make book PYTHON=/path/to/python3.12`. Without it, the first that fits.
PYTHON ?=
N := 20
PORT := 8000

SHELL := /bin/sh
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --disable-pip-version-check
NOTEBOOKS := chapters/*.ipynb solutions/*.ipynb
NBVAL := $(RUN) -m pytest --nbval --nbval-current-env --nbval-cell-timeout=120

# The pins were tried on Python 3.11 to 3.13. (A Debian python3 may lack what makes a .venv.)
FITS := -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'

.PHONY: help book test notebooks exercises set-up repeat count mutants grade-proof site-proof bench links serve colab compat point-at release clean FORCE
.DELETE_ON_ERROR:
.NOTPARALLEL:

help: ## list what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

book: $(VENV)/book.stamp ## build the book into _build/html (installs no torch, runs no notebook)
	@# After a warning nothing may stay, or the next build would skip that page and pass.
	@$(VENV)/bin/jupyter-book build . -W -n --keep-going || { rm -rf _build; \
	  echo "make book: the warnings or errors above stopped the build. Mend them and run it again." >&2; exit 1; }
	@# Sphinx copies these only when a page has changed too.
	@cp -R _static/. _build/html/_static/
	@echo "The book is built. Open _build/html/index.html in a browser, or run: make serve"

test: $(VENV)/test.stamp ## check everything: code, notebooks, book, unit tests with coverage
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) tools/notebooks.py check
	$(RUN) tools/exercises.py check
	@$(MAKE) --no-print-directory book
	$(NBVAL) chapters solutions
	@echo "Passed: lint, types, the notebooks' form, the book's build, the notebooks' outputs."
	@echo "Last, the tests of the package, the tools, the repository and the built book:"
	OMP_NUM_THREADS=1 $(RUN) -m pytest --cov -n 2 tests

notebooks: $(VENV)/test.stamp ## run the changed notebooks and store them canonically; all with ALL=1
	$(RUN) tools/notebooks.py run $(if $(ALL),--all)

exercises: $(VENV)/test.stamp ## make exercises/ from the notebooks in solutions/
	$(RUN) tools/exercises.py make

set-up: $(VENV)/test.stamp ## write the set-up cell of every notebook anew
	$(RUN) tools/notebooks.py set-up

repeat: count $(VENV)/test.stamp ## hold the changed notebooks' outputs true N times (N=20); all with ALL=1
	@base=$$(git merge-base HEAD main 2>/dev/null || echo HEAD); \
	if [ -n "$(ALL)" ]; then changed=$$(ls $(NOTEBOOKS)); \
	else changed=$$(git diff --name-only --diff-filter=d $$base -- $(NOTEBOOKS); \
	  git ls-files --others --exclude-standard -- $(NOTEBOOKS)); fi; \
	[ -n "$$changed" ] || { echo "No notebook differs from main. For all of them: make repeat ALL=1"; exit 0; }; \
	i=1; while [ $$i -le $(N) ]; do echo "Round $$i of $(N)"; \
	  $(NBVAL) -q $$changed || { echo "make repeat: round $$i of $(N) failed." >&2; exit 1; }; \
	  i=$$((i + 1)); done; echo "$(N) rounds passed:" $$changed

count:
	@case "$(N)" in "" | 0* | *[!0-9]*) \
	  echo "make repeat: N=$(N) is no whole number from 1 up. For example: make repeat N=20" >&2; exit 1;; esac

mutants: $(VENV)/test.stamp ## hold the exercises' checks against all answers, 1,000 inputs each (over an hour)
	SEEDS=1000 OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n 2 tests/test_mutants.py

grade-proof: $(VENV)/test.stamp ## grade a class of every kind, and kill the grader twenty times
	GRADE_PROOF=1 OMP_NUM_THREADS=1 $(RUN) -m pytest -q tests/test_grading_class.py

site-proof: book $(VENV)/test.stamp ## look at every page on a phone and a desk, both light and dark
	SITE_PROOF=1 $(RUN) -m pytest -q -n 2 tests/test_site.py

colab: $(VENV)/test.stamp ## run all notebooks as Colab does, in its versions (Python 3.13, 5 GB meanwhile)
	$(RUN) tools/colab.py

compat: $(VENV)/test.stamp ## test the package on Python 3.10 to 3.13 with the oldest and newest it runs on
	$(RUN) tools/compat.py

point-at: $(VENV)/test.stamp ## lead all to REPO=https://github.com/OWNER/NAME and, if given, REF=branch-or-tag
	@$(RUN) tools/point_at.py "$$REPO" $${REF:+"$$REF"}

release: $(VENV)/test.stamp ## set VERSION=1.2.3, test all, and say which tag to push
	@$(RUN) tools/release.py "$$VERSION"

bench: $(VENV)/test.stamp ## measure speed and memory side by side with PyTorch's own
	$(RUN) benchmarks/run.py

links: $(VENV)/book.stamp ## ask every other site that the book links to whether it still answers
	$(VENV)/bin/jupyter-book build . --builder linkcheck --path-output _build/links

serve: book ## show the built book on http://127.0.0.1:8000 (another port: PORT=8001)
	$(RUN) -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

clean: ## remove what was built; .venv stays
	rm -rf _build build *.egg-info .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis

# A stamp is written only when all before it went well, so what was interrupted is done again.
$(VENV)/test.stamp: requirements.txt pyproject.toml lib/qkv/__init__.py $(VENV)/book.stamp
	@echo "Installing what running and testing need, PyTorch among it: minutes the first time."
	$(PIP) -r requirements.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/book.stamp: requirements-book.txt $(VENV)/python.stamp
	@echo "Installing what the book needs: a minute or two the first time."
	$(PIP) -r requirements-book.txt
	@touch $@

# Looked at on every call, changed only when .venv is missing, half made, of another Python, or
# was moved here with the folder (its scripts and the link to lib/qkv would name the old place).
$(VENV)/python.stamp: FORCE
	@command -v git >/dev/null || { \
	  echo "git is missing. Install it (Debian, Ubuntu: apt install git; macOS: xcode-select --install)." >&2; exit 1; }
	@if [ "$$(cat $@ 2>/dev/null)" = "$(CURDIR)" ] && $(RUN) $(FITS) 2>/dev/null; then exit 0; fi; \
	for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3); do \
	  if $$python $(FITS) 2>/dev/null; then \
	    echo "Making $(VENV) with $$($$python --version)"; \
	    rm -rf $(VENV) && $$python -m venv $(VENV) && echo "$(CURDIR)" > $@; exit; \
	  fi; \
	done; \
	echo "This course needs Python 3.11, 3.12 or 3.13 with the module venv. Tried:" >&2; \
	for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3); do \
	  echo "  $$python: $$($$python --version 2>/dev/null || echo 'not there, or does not run')" >&2; \
	done; \
	echo "Install one (Debian, Ubuntu: apt install python3 python3-venv), or name one:" >&2; \
	echo "  make book PYTHON=/path/to/python3.12" >&2; exit 1

# `make demo` and `make test` do all of their own set-up; both can be run again at any time.
VENV ?= .venv
TARGET := $(or $(CARGO_TARGET_DIR),target)
BUILT := $(abspath $(TARGET))/debug/caretaker
# What the demo runs: `make demo CARETAKER=/usr/local/bin/caretaker` builds nothing. Tests run what they build.
CARETAKER ?= $(BUILT)
CLIENT_TESTS := $(abspath $(TARGET))/debug/caretaker-client-tests
PLUGINS := $(abspath $(TARGET))/wasm
PYTHON := $(VENV)/bin/python
# They wait most of the time: two at once. The tests of one file stay together, since they share what they set up.
PYTEST := -q -n 2 --dist loadfile
# Three selections: what the planner's Wasm builds, or LanceDB's client, turn on in crates that Lance has too would
# have Lance built again, and Caretaker tested otherwise than it is built.
LANCE := -p caretaker -p caretaker-planner -p caretaker-tests -p caretaker-benches -p caretaker-host
WASM := -p caretaker-web -p caretaker-plugin
CLIENT := -p caretaker-client-tests
DEMO := $(abspath $(TARGET))/demo

.PHONY: help demo test lint wasm unit real browser bench clean
help: ## what there is to make
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

demo: export CARETAKER_STATE_DIR = none
demo: ## a real LanceDB table before and after Caretaker; CARETAKER=PROGRAM: with a ready one
	@VENV=$(VENV) .ci/setup python
ifeq ($(CARETAKER),$(BUILT))
	@.ci/setup build
	@echo "building caretaker (the first time takes ten to twenty minutes)"
	@cargo build --quiet -p caretaker
endif
	@$(PYTHON) tests/py/demo.py make $(DEMO)
	@$(PYTHON) tests/py/demo.py show $(DEMO)
	@$(CARETAKER) run $(DEMO)
	@$(PYTHON) tests/py/demo.py show $(DEMO)
	@$(PYTHON) tests/py/demo.py check $(DEMO)
	@$(PYTHON) tests/py/demo.py forget $(DEMO)
	@$(CARETAKER) run $(DEMO) --collect-grace-secs 0
	@$(PYTHON) tests/py/demo.py check $(DEMO)

test: lint wasm unit real browser ## every check that continuous integration runs

lint: ## fmt, clippy, cargo deny
	@.ci/setup build lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo deny --log-level error check bans licenses sources

wasm: ## the planner for the browser and for plugins, the template in JavaScript, the page
	@.ci/setup build npm
	.ci/wasm.sh $(TARGET)

unit: wasm ## Rust tests
	@.ci/setup build database
	cargo test --no-fail-fast $(LANCE)
	cargo test --no-fail-fast $(WASM)
	cargo test -p caretaker-planner --features schema --test schemas

real: wasm ## tests with the real LanceDB clients (Python, Node.js, Rust), and of the fleet page in a browser
	@VENV=$(VENV) .ci/setup build database python python39 openssl node web
	cargo build -p caretaker
	cargo build $(CLIENT)
	CARETAKER=$(BUILT) CLIENT_TESTS=$(CLIENT_TESTS) PLUGINS=$(PLUGINS) $(PYTHON) -m pytest $(PYTEST) tests/py
	CARETAKER=$(BUILT) $(VENV)-0.39/bin/python -m pytest $(PYTEST) tests/py/test_wire*.py

browser: wasm ## tests in a real browser
	@.ci/setup web
	cd web && npm test

bench: ## the fold beside merge_insert and the floor (a release build: up to an hour)
	@.ci/setup build database
	cargo bench -p caretaker-benches

clean: ## forget all that was built and installed here
	cargo clean
	rm -rf tests/js/node_modules web/node_modules web/dist web/src/generated host/templates/javascript/node_modules \
		$(VENV) $(VENV)-0.39

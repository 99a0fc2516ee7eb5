# `make demo` and `make test` set up all they need. DEMO_MODEL=tiny runs the
# same road with a small model from scratch; DEMO_DIR says where results go.
PYTHON ?= python3
VENV ?= .venv
DEMO_MODEL ?= smollm2
DEMO_DIR ?= demo
export PYTHON VENV
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
RUN = $(VENV)/bin/python
# Compiling takes most of the tests' time: programs run once need not be good ones.
# `make test-all` compiles as users do.
QUICKLY = XLA_FLAGS="--xla_backend_optimization_level=0 \
  --xla_llvm_disable_expensive_passes=true"

.PHONY: demo test test-all lint requirements clean

demo:
	@launch/install.sh demo
	@$(RUN) -m launch.demo --model=$(DEMO_MODEL) --out=$(DEMO_DIR)

test:
	@launch/install.sh test
	@$(VENV)/bin/lint-imports
	@$(QUICKLY) $(RUN) -m pytest -q -n 2 --dist loadfile -m "not slow"

test-all:
	@launch/install.sh test
	@$(VENV)/bin/lint-imports
	@$(RUN) -m pytest -q -n 2 --dist loadfile -m "not slow"
	@$(RUN) -m pytest -q -m slow  # alone: they measure time and memory

requirements:
	@launch/install.sh test
	@$(RUN) -m launch.requirements

clean:
	rm -rf $(VENV) .cache demo

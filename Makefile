# A thin front for CMake. `make demo` and `make test` do everything on a fresh machine: they
# install what is missing and say so first.
BUILD ?= $(if $(SAN),build/$(SAN),build/release)
PREFIX ?= /usr/local

.PHONY: all demo test torch bench claims attacks check fuzz soak format install deb clean

all: packages-build $(if $(SAN),packages-test packages-check)
	@$(if $(SAN),scripts/sanitize.sh $(SAN),cmake -S . -B $(BUILD) -G Ninja) \
		-DCMAKE_INSTALL_PREFIX=$(PREFIX) > /dev/null
	@cmake --build $(BUILD)

packages-%:
	@scripts/packages.sh $*

demo: all ## train four replicas on English text and compare
	@examples/demo.sh $(BUILD)/diloco

test: packages-build packages-test packages-servers all ## every test this machine can run [SAN=address|thread]
	@scripts/test.sh $(BUILD)

torch: ## build/venv with torch and its trainers, which the tests of the Python package then use
	@python3 -m venv build/venv
	@build/venv/bin/pip install --quiet -r python/tests/requirements.txt

bench: all ## what is measured, against what: bench/*.md
	@bench/run.sh $(BUILD)

claims: all ## what the papers say, tried here: make claims DATA=folder-of-texts [FLAGS=--overnight]
	@python3 bench/claims/claims.py $(BUILD)/diloco $(if $(DATA),--data $(DATA)) --out build/claims $(FLAGS)

attacks: all ## what members that lie can do: make attacks DATA=folder-of-texts MNIST=folder [FLAGS=--hours=1]
	@python3 bench/attacks/attacks.py $(BUILD)/diloco $(BUILD)/tests/hostile.so $(if $(DATA),--data $(DATA)) $(if $(MNIST),--mnist $(MNIST)) --out build/attacks $(FLAGS)

fuzz: packages-build packages-check ## ten minutes for every parser of outside bytes
	@scripts/fuzz.sh $${FUZZ_SECONDS:-600}

soak: packages-build packages-test packages-check all ## for as long as it may take: the whole matrix, fuzzing, simulations
	@scripts/soak.sh $(BUILD)

check: packages-build packages-test packages-check packages-servers ## formatting, linting, both compilers, sanitizers
	@scripts/check.sh

format: packages-check
	@git ls-files '*.c' '*.h' '*.cc' | xargs clang-format -i

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

deb: all
	@cmake --build $(BUILD) --target deb

clean:
	@rm -rf build

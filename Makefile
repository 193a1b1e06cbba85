# Everything here is also an ordinary go command; this file only remembers them.

.PHONY: test race ci demo fuzz bench golden tokenizers templates kill metamorphic memory states gpu-bundle pictures screens strategies dist

test:            ## the whole suite
	go test -timeout 90m ./...

race:            ## the whole suite under the race detector, which needs a C compiler
	CGO_ENABLED=1 go test -timeout 90m -race -short ./...

ci:              ## what must pass before a change lands
	bash .ci/run

demo:
	go run ./cmd/spillway demo

FUZZTIME ?= 5m
fuzz:            ## every fuzz target, FUZZTIME each
	@set -e; for p in $$(go list ./...); do \
	  for f in $$(go test $$p -list '^Fuzz' | grep '^Fuzz' || true); do \
	    echo "fuzz $$p $$f"; go test $$p -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME); done; done

bench:           ## ratios to the machine's own peak and to baselines found on it
	go run ./cmd/spillway bench cpu

kill:            ## kill a training run fifty times, runs from disk and all commands that write files a thousand; each must end with the same bits
	go test ./run -run TestKilledRunsGoOn -v -kills 50
	go test ./run -run TestKilledDiskTraining -v -timeout 0 -diskkills 1000
	go test ./store -run TestKilled -v -timeout 0 -kills 1000
	go test ./cmd/spillway -run 'TestKilledCommands|TestManyStarts' -v -timeout 0 -kills 1000 -starts 200

golden:          ## write golden files again; review them as a diff
	go test . ./planner ./cmd/spillway -rewrite

tokenizers:      ## fetch real tokenizer files for the tests that want them
	bash tools/reference/tokenizers/fetch.sh

templates:       ## fetch chat templates of published models and render them with Jinja, for the tests that want them
	bash tools/reference/templates.sh

screens:         ## take the pictures of the dashboard again; it needs Debian's chromium-headless-shell
	go test ./dashboard -run TestScreens -count=1 -timeout 20m -screenshots $(CURDIR)/docs/pictures

pictures:        ## docs/packages.svg and docs/iteration.svg again, from the code
	go run ./tools/pictures

strategies:      ## docs/strategies.md anew: what the planner picks for presets; goes on where it was ended, remove build/strategies to begin anew
	go run ./tools/strategies -cache build/strategies

metamorphic:     ## thousands of random plans of one training run give the same numbers
	go test ./internal/metamorphic -run TestPlacementChangesNothing -plans 2000 -timeout 30m

states:          ## a small Llama learns as well with quantized optimizer state, over a thousand iterations
	go test ./train -run TestQuantizedStatesLearnAsWell -v -learn 1000

memory:          ## predicted against measured memory of hundreds of runs, and of processes in a control group
	go test ./internal/metamorphic -run TestPredictedMemoryIsMeasured -v -runs 300 -timeout 30m
	go test ./run -run TestControlGroup -v

DIST ?= build/dist
DIST_FOR = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
VERSION ?= $(shell git describe --tags --always --dirty)
dist:            ## archives of the binary for each platform, with checksums
	rm -rf $(DIST) && mkdir -p $(DIST)
	@set -e; for p in $(DIST_FOR); do \
	  name=spillway-$(VERSION)-$$(echo $$p | tr / -); echo "dist $$name"; mkdir $(DIST)/$$name; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(DIST)/$$name/ ./cmd/spillway; \
	  cp README.md LICENSE $(DIST)/$$name/; \
	  case $$p in windows/*) (cd $(DIST) && zip -qr $$name.zip $$name);; *) tar -C $(DIST) -czf $(DIST)/$$name.tar.gz $$name;; esac; rm -r $(DIST)/$$name; done
	cd $(DIST) && sha256sum *.tar.gz *.zip > SHA256SUMS

# Where the bundle for a machine with a GPU goes, and the packages whose tests use one.
GPU ?= build/gpu
GPU_TESTS = device/cuda internal/nvml
GPU_MODEL = testdata/reference/llama
gpu-bundle:      ## the binary, the baselines and the tests that use a GPU, for a machine that has one and no Go
	rm -rf $(GPU) && mkdir -p $(GPU)
	CGO_ENABLED=0 go build -trimpath -o $(GPU)/spillway ./cmd/spillway
	@set -e; for p in $(GPU_TESTS); do \
	  echo "tests of $$p"; CGO_ENABLED=0 go test -c -trimpath -o $(GPU)/$$(echo $$p | tr / -).test ./$$p; done
	CGO_ENABLED=0 go test -c -trimpath -o $(GPU)/run.test ./run
	mkdir -p $(GPU)/$(GPU_MODEL) && cp $(GPU_MODEL)/*.json $(GPU_MODEL)/*.safetensors $(GPU)/$(GPU_MODEL)
	cp -r bench/baselines $(GPU)/baselines
	@echo 'on the machine with the GPU: ./run.test -test.run OnTheGPU -curve $(GPU_MODEL); for t in ./device-cuda.test ./internal-nvml.test; do $$t; done; ./spillway bench gpu --baselines baselines'

# The commands of this project. "make test" is the whole suite; it installs what it needs (as root, on Debian).
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS   += --no-print-directory

PYTHON      ?= /usr/bin/python3
SOAK        ?= 10m
SOAKRUN     ?= ^TestSoak
FUZZTIME    ?= 60s
BENCH       ?= .
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2

export PYTHON

# go test, with the summary line "N passed, M failed" at the end.
SUMMED = go build -o bin/testsum ./internal/house/testsum && bin/testsum -- go test -json -race -vet=off -count=1

.PHONY: build test interop soak bench bench-table bench-router bench-relay bench-events bench-mesh fuzz lint parts broker

build: ## bin/router and bin/routectl
	go build -o bin/ ./cmd/router ./cmd/routectl

test: parts ## the whole suite
	@$(SUMMED) -timeout 14m ./...

interop: parts broker ## foreign clients and bad peers, with more messages and the slow cases
	@$(SUMMED) -timeout 40m -tags heavy ./interop

soak: parts ## long runs, for SOAK=10m each: all, or SOAKRUN=regexp (TestSoakChaos)
	@SOAK=$(SOAK) $(SUMMED) -timeout 0 -tags heavy,soak -run '$(SOAKRUN)' ./interop

bench: ## benchmarks, all or BENCH=regexp
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

bench-table: ## the routing table against its goals and against other matchers
	cd bench && go run .

bench-router: build ## a router against its goals: CPU, latency, memory (about ten minutes)
	@bin/routectl bench --goals $(BENCHFLAGS) || [ $$? = 1 ]

bench-relay: build ## the relay against its goals: CPU and memory of a router (about two minutes)
	@go build -o bin/ ./internal/house/doorbench && bin/doorbench -door relay $(BENCHFLAGS)

bench-events: build ## the event router against its goals: CPU, memory, replay, latency beside a stalled component (about two minutes)
	@go build -o bin/ ./internal/house/doorbench && bin/doorbench -door events $(BENCHFLAGS)

bench-mesh: build ## the mesh of Rembus against its goals: CPU, latency, how soon routers know (about two minutes), and the frames of a flood
	@go build -o bin/ ./internal/house/doorbench && bin/doorbench -door mesh $(BENCHFLAGS)
	@go test -count=1 -run 'FloodOnFiftyRouters' -v ./internal/mesh | grep 'links,'

fuzz: ## every fuzz target in turn, FUZZTIME=60s each
	@for p in $$(go list ./...); do \
		targets=$$(go test -list '^Fuzz' $$p); \
		for f in $$(grep '^Fuzz' <<<"$$targets" || true); do \
			echo "fuzz $$p $$f"; \
			go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x $$p; \
		done; \
	done

lint: ## go vet, gofmt, staticcheck
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
		if [ -n "$$bad" ]; then echo "not formatted: $$bad"; exit 1; fi
	go vet -tags heavy,soak ./...
	go run $(STATICCHECK) -tags heavy,soak ./...

# What the tests need beside Go. A part that cannot be had is an error: no test is left out for want of it.
parts:
	@need=(); \
	command -v gcc >/dev/null || need+=(gcc libc6-dev); \
	$(PYTHON) -c 'import websockets' 2>/dev/null || need+=(python3-websockets); \
	command -v node >/dev/null || need+=(nodejs); \
	command -v npm >/dev/null || need+=(npm); \
	$(PYTHON) -c 'import proton' 2>/dev/null || need+=(python3-qpid-proton libsasl2-modules); \
	$(PYTHON) -c 'import cbor2, websockets, cryptography' 2>/dev/null || need+=(python3-cbor2 python3-websockets python3-cryptography); \
	if [ $${#need[@]} -gt 0 ]; then \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$${need[@]}"; \
	fi
	@for d in interop relay; do \
		cd $(CURDIR)/testdata/$$d; \
		cmp -s package-lock.json node_modules/.installed || { npm ci --silent && cp package-lock.json node_modules/.installed; }; \
	done
	@$(PYTHON) -c 'import proton, cbor2, websockets, cryptography'
	@node --version >/dev/null

# What "make interop" needs beside that: RabbitMQ, NATS and a browser. They are installed and not started; the tests start their own.
broker:
	@need=(); \
	test -x /usr/lib/rabbitmq/bin/rabbitmq-server || need+=(rabbitmq-server); \
	command -v nats-server >/dev/null || need+=(nats-server); \
	command -v chromium >/dev/null || need+=(chromium); \
	if [ $${#need[@]} -gt 0 ]; then \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$${need[@]}"; \
	fi
	@test -x /usr/lib/rabbitmq/bin/rabbitmq-server
	@command -v nats-server >/dev/null
	@command -v chromium >/dev/null

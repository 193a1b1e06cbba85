// Fromscratch is the idea of Spillway in one small program: it trains a stack of blocks
// whose weights are stored on the host and copied to a small device block by block.
//
// It uses only the standard library and shares no code with the engine; its test trains
// the same model with the engine and compares the losses. Read plan.go (the instructions
// of an iteration, as data), device.go (a device with limited memory that executes a
// plan) and block.go (the arithmetic of a block), in this order.
//
// There are two plans. The standard one holds the whole model and all activations on the
// device. The streamed one holds one block at a time and recomputes activations in the
// backward pass. They give the same losses, bit for bit:
//
//	go run ./examples/fromscratch
package main

import (
	"fmt"
	"log"
	"math/rand/v2"
)

func main() {
	for _, p := range []plan{standard(), streamed()} {
		if err := train(p, 10); err != nil {
			log.Fatal(err)
		}
	}
}

// train runs iterations of a plan. The device has exactly the memory that a dry run of
// the plan, without arithmetic, has measured.
func train(p plan, iterations int) error {
	dryRun := &device{}
	if _, err := dryRun.iterate(p); err != nil {
		return err
	}
	fmt.Printf("a plan of %d instructions needs %d KiB\n", len(p), dryRun.peak*8/1024)
	dev := &device{host: newHost(), limit: dryRun.peak}
	for i := range iterations {
		loss, err := dev.iterate(p)
		if err != nil {
			return err
		}
		fmt.Printf("  iteration %2d  loss %.6f\n", i, loss)
	}
	return nil
}

// host stores the model: for every block its weights and AdamW's two moments. The batch
// is N rows of input with the rows that the model should make of them.
type host struct {
	weights, m, v [blocks][]float64
	updates       [blocks]int // number of updates of each block
	batch, target []float64   // [N,C]
}

// newHost has random weights, and a batch whose rows are to be reversed.
func newHost() *host {
	r := rand.New(rand.NewPCG(1, 1))
	random := func(n int, scale float64) []float64 {
		list := make([]float64, n)
		for i := range list {
			list[i] = scale * r.NormFloat64()
		}
		return list
	}
	h := &host{batch: random(N*C, 1), target: make([]float64, N*C)}
	for i := range h.target {
		h.target[i] = h.batch[i/C*C+C-1-i%C]
	}
	for b := range blocks {
		h.weights[b], h.m[b], h.v[b] = random(2*C*F, 0.1), make([]float64, 2*C*F), make([]float64, 2*C*F)
	}
	return h
}

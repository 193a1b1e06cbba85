// Fromscratch is Spillway from scratch in one small program: it trains a tiny
// Llama whose weights are stored on the host and visit a small device block by block.
//
// It uses the standard library alone and shares no line with the engine, so that
// the two can check each other. Nothing here is fast. Read it in this order:
//
//   - model.go: the dimensions, the blocks of a Llama and their params
//   - plan.go: what an iteration does, as data
//   - device.go: memory with a limit, and a CPU that carries out a plan
//   - block.go, ops.go: a layer forward and backward by hand; its arithmetic
//   - adamw.go, safetensors.go: the update rule and the file format
//
// Two plans are written down. The standard one holds the whole model and all its
// activations on the device; the streamed one holds one block at a time and recomputes
// activations in the backward. They give the same losses, bit for bit:
//
//	go run ./examples/fromscratch
package main

import (
	"flag"
	"fmt"
	"log"
)

func main() {
	folder := flag.String("model", "testdata/reference/llama", "tiny Llama: config.json, model.safetensors, expect.safetensors")
	iterations := flag.Int("iterations", 10, "optimizer steps on the one recorded batch")
	flag.Parse()
	for _, strategy := range []func(head int) plan{standard, streamed} {
		if err := train(*folder, strategy, *iterations); err != nil {
			log.Fatal(err)
		}
	}
}

// train runs iterations under the plan of one strategy, in exactly the memory that
// the plan was found to need when it was carried out without arithmetic.
func train(folder string, strategy func(head int) plan, iterations int) error {
	d, h, err := openModel(folder)
	if err != nil {
		return err
	}
	p := strategy(d.L + 1)
	rehearsal := newDevice(d, nil, 0)
	if _, err := rehearsal.iterate(p); err != nil {
		return err
	}
	fmt.Printf("a plan of %d instructions needs %d KiB\n", len(p), rehearsal.peak*4/1024)
	dev := newDevice(d, h, rehearsal.peak)
	for i := range iterations {
		loss, err := dev.iterate(p)
		if err != nil {
			return err
		}
		fmt.Printf("  iteration %2d  loss %.6f\n", i, loss)
	}
	return nil
}

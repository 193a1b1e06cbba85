// Fromscratch is Spillway from scratch in one small program: it trains a tiny Llama
// whose weights are stored on the host and copied to a small device block by block.
//
// It uses only the standard library and shares no code with the engine, so that the two
// can check each other. Nothing here is fast. Read it in this order:
//
//   - model.go: the dimensions, the blocks of a Llama and their params
//   - plan.go: the instructions of an iteration, as data
//   - device.go: a device with limited memory that executes a plan
//   - block.go, ops.go: forward and backward of a layer, and their operations
//   - adamw.go, safetensors.go: the update rule and the file format
//
// There are two plans. The standard one holds the whole model and all activations on the
// device. The streamed one holds one block at a time and recomputes activations in the
// backward pass. They give the same losses, bit for bit:
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

// train runs iterations of one strategy's plan. The device has exactly the memory that
// a dry run of the plan, without arithmetic, has measured.
func train(folder string, strategy func(head int) plan, iterations int) error {
	d, h, err := openModel(folder)
	if err != nil {
		return err
	}
	p := strategy(d.L + 1)
	dryRun := newDevice(d, nil, 0)
	if _, err := dryRun.iterate(p); err != nil {
		return err
	}
	fmt.Printf("a plan of %d instructions needs %d KiB\n", len(p), dryRun.peak*4/1024)
	dev := newDevice(d, h, dryRun.peak)
	for i := range iterations {
		loss, err := dev.iterate(p)
		if err != nil {
			return err
		}
		fmt.Printf("  iteration %2d  loss %.6f\n", i, loss)
	}
	return nil
}

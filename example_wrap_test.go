package spillway_test

import (
	"fmt"
	"log"

	"spillway"
	"spillway/machine"
	"spillway/nn"
)

// A model of one's own, trained on a device that has less memory than it needs, then
// moved to a plan of another kind between two iterations.
func ExampleWrap() {
	net := nn.NewSequential(nn.NewLinear(2, 64), nn.Tanh, nn.NewLinear(64, 64), nn.Tanh, nn.NewLinear(64, 64), nn.Tanh, nn.NewLinear(64, 64), nn.Tanh, nn.NewLinear(64, 1))
	net.Input, net.Loss = []int64{2}, nn.MeanSquare

	here, err := machine.Parse("gpu:2GiB,host:8GiB") // left out, it is this computer
	if err != nil {
		log.Fatal(err)
	}
	model, err := spillway.Wrap(net, spillway.Config{Options: spillway.Options{Machine: here, MaxMemory: "128KiB", MicroBatches: 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()

	batch := spillway.Batch{ // the exclusive or of two numbers
		"input":  spillway.Floats([]float32{0, 0, 0, 1, 1, 0, 1, 1}, 4, 2),
		"target": spillway.Floats([]float32{0, 1, 1, 0}, 4, 1),
	}
	first, err := model.Step(batch)
	if err != nil {
		log.Fatal(err)
	}
	stats := model.MemoryStats()
	fmt.Println("within the limit:", stats.Devices[0].Peak <= 128<<10)
	fmt.Println("moved to and fro:", stats.SwapsIn.Bytes > 0 && stats.SwapsOut.Bytes > 0)

	c := model.Config()
	c.Strategy, c.MaxMemory = "standard", ""
	if err := model.Replan(c); err != nil {
		log.Fatal(err)
	}
	var loss float64
	for range 300 {
		if loss, err = model.Step(batch); err != nil {
			log.Fatal(err)
		}
	}
	output, err := model.Forward(spillway.Batch{"input": batch["input"]})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("then:", model.Strategy(), output.Shape)
	fmt.Println("it learned:", loss < first/10)
	// Output:
	// within the limit: true
	// moved to and fro: true
	// then: standard [4 1]
	// it learned: true
}

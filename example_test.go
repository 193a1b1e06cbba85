package spillway_test

import (
	"context"
	"fmt"
	"log"

	"spillway"
	"spillway/data"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/generate"
	"spillway/machine"
	"spillway/train"
)

// Train a model on a device that has less memory than ordinary training takes, and
// generate from a model.
func Example() {
	model, err := spillway.Open("tiny-llama") // a shape, so its weights start fresh
	if err != nil {
		log.Fatal(err)
	}
	here, err := machine.Parse("cpu:1GiB,host:4GiB") // or machine.Probe
	if err != nil {
		log.Fatal(err)
	}
	dev := cpu.Open(cpu.Options{})
	defer dev.Close()
	options := spillway.Options{Task: spillway.Train, MicroBatchSize: 4, Seq: 32, Packed: true, Machine: here, On: []device.Device{dev}}
	ordinary, err := model.Plan(options)
	if err != nil {
		log.Fatal(err)
	}
	options.Budget = ordinary.Plan.Peak()["device"] * 2 / 3
	job, err := model.Plan(options)
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(documents(100), data.Config{Length: 32})
	if err != nil {
		log.Fatal(err)
	}
	var first float64
	result, err := train.Run(context.Background(), job, train.NewTokens(loader), train.Config{Iterations: 10, Report: func(r train.Report) {
		if first == 0 {
			first = r.Loss
		}
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("two thirds of the memory:", job.Plan.Peak()["device"] <= options.Budget)
	fmt.Println("the loss fell:", result.Loss < first)

	options.Task, options.MicroBatchSize, options.Budget = spillway.Infer, 1, 0
	infer, err := model.Plan(options)
	if err != nil {
		log.Fatal(err)
	}
	if err := infer.Start(); err != nil {
		log.Fatal(err)
	}
	defer infer.Close()
	engine, err := generate.NewPlain(infer)
	if err != nil {
		log.Fatal(err)
	}
	text, err := generate.New(engine, nil, generate.Request{Prompt: []int32{3, 4, 5}, MaxNewTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	for _, err := range text.All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("new tokens:", len(text.Results()[0].Tokens))
	// Output:
	// two thirds of the memory: true
	// the loss fell: true
	// new tokens: 4
}

// documents are made-up texts of different lengths.
type documents int

func (d documents) Len() int64 { return int64(d) }

func (d documents) Document(i int64) (data.Document, error) {
	list := make([]int32, 3+(i*7)%13)
	for k := range list {
		list[k] = int32((i*i + 5*int64(k)*(i+1) + int64(k*k)) % 61)
	}
	return data.Document{Tokens: list}, nil
}

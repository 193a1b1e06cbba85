package generate_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/generate"
	"spillway/machine"
)

// A session generates several sequences at once. Its memory is that of its plan, known before
// anything runs; a context cancels a step.
func ExampleSession() {
	model, err := spillway.Open("../testdata/reference/llama")
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	dev := cpu.Open(cpu.Options{})
	defer dev.Close()
	here, err := machine.Parse("cpu:1GiB,host:4GiB")
	if err != nil {
		log.Fatal(err)
	}
	run, err := model.Plan(spillway.Options{
		Task:    spillway.Generate,
		Machine: here, On: []device.Device{dev},
		Generation: spillway.Generation{Context: 64, Streams: 2},
	})
	if err != nil {
		log.Fatal(err) // with settings that fit, where these do not
	}
	if err := run.Start(); err != nil {
		log.Fatal(err)
	}
	defer run.Close()

	session, err := generate.NewSession(run)
	if err != nil {
		log.Fatal(err)
	}
	var texts []generate.Sequence
	for _, prompt := range [][]int32{{5, 17, 3, 80}, {9, 9}} {
		q, err := session.Add(prompt)
		if err != nil {
			log.Fatal(err)
		}
		texts = append(texts, q)
	}
	for range 4 {
		if err := session.Step(context.Background()); err != nil {
			log.Fatal(err)
		}
		for _, q := range texts { // the likeliest token of each
			logits := q.Logits()
			if err := q.Append(int32(slices.Index(logits, slices.Max(logits)))); err != nil {
				log.Fatal(err)
			}
		}
	}
	for _, q := range texts {
		fmt.Println(q.Len(), "tokens")
	}
	// Output:
	// 8 tokens
	// 6 tokens
}

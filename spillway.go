// Package spillway trains and runs neural networks larger than the memory of the device
// they run on. It is the entrance for programs: it names what the packages below do and
// decides nothing itself.
//
// Wrap takes a model of one's own and runs it within the memory there is:
//
//	net, err := spillway.Wrap(model, spillway.Config{})
//	loss, err := net.Step(batch)     // one iteration of training
//	output, err := net.Forward(batch)
//	fmt.Println(net.Explain(), net.MemoryStats())
//
// With more control, a plan is made and looked at before a loop carries it out:
//
//	model, err := spillway.Open("path/to/folder") // or a preset: "llama-3-8b"
//	run, err := model.Plan(spillway.Options{Task: spillway.Train, MicroBatchSize: 4, Seq: 1024, Machine: here, On: devices})
//	fmt.Println(run.Plan.Strategy, run.Plan.Reason)
//	result, err := train.Run(ctx, run, feed, train.Config{Iterations: 1000})
//
// A Model is an architecture and the values of its weights. A Run is a model with a
// verified plan, which says before anything is allocated where every byte will live.
// Package train trains it, package generate continues texts with it. A recipe and its
// data are a run in one call, in package finetune.
package spillway

import (
	"spillway/nn"
	"spillway/run"
	"spillway/run/batch"
	"spillway/run/state"
	"spillway/units"
)

type (
	// Model is a network and the values of its weights: an opened folder, a preset, or
	// Go structs. Its method Plan makes a Run.
	Model = run.Model
	// Options are all settings of a run.
	Options = run.Options
	// Generation is the cache and the steps of the task Generate, GenerationForecast what a
	// plan for it is expected to do.
	Generation         = run.Generation
	GenerationForecast = run.GenerationForecast
	Division           = run.Division
	// Exception is modules that compute in a type of their own.
	Exception = run.Exception
	// Run is a model with a plan, and while it runs with its memory on the devices.
	Run = run.Run
	// Task is what a model is to be used for.
	Task = run.Task
)

// The tasks.
const (
	Infer    = run.Infer    // logits
	Generate = run.Generate // logits of next tokens, over a cache
	Eval     = run.Eval     // the loss, without dropout
	Train    = run.Train    // all weights
	LoRA     = run.LoRA     // adapters next to frozen weights
	QLoRA    = run.QLoRA    // the same, with the frozen weights in 4 bits
)

type (
	// Tensor is numbers with a shape.
	Tensor = batch.Tensor
	// Batch is the tensors that a model reads, by name.
	Batch = batch.Batch
	// StateDict is the weights of a model, by name.
	StateDict = state.Dict
	// OptimizerState is what training needs to go on, in addition to weights.
	OptimizerState = state.Optimizer
	// MemoryStats say where a model's bytes are and what has moved.
	MemoryStats = run.MemoryStats
)

// Open opens a model folder, a config.json, or a preset by its name. The last two start
// from random weights. The caller closes the model.
func Open(name string) (*Model, error) { return run.Open(name) }

// OfSize is a model of which only the size of its weights in 16 bits is known: Llama's shape with
// as many params.
func OfSize(weights units.Bytes) (*Model, error) { return run.OfSize(weights) }

// Define makes a model of one's own Go structs. Build is called for every plan, since
// adapters change what they are attached to. The weights are random.
func Define(name string, build func() (nn.Model, error)) *Model { return run.Define(name, build) }

// FreeNow is a change for Run.RequestReplan: use the memory that is free then.
func FreeNow(o *Options) { run.FreeNow(o) }

// Floats makes a tensor of numbers.
func Floats(values []float32, dims ...int64) Tensor { return batch.Floats(values, dims...) }

// Ints makes a tensor of ids.
func Ints(values []int32, dims ...int64) Tensor { return batch.Ints(values, dims...) }

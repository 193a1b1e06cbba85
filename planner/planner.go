package planner

import "spillway/planner/strategy"

// What strategies are made of, under the names that callers use.
type (
	Constraints = strategy.Constraints
	Bounds      = strategy.Bounds
	Choice      = strategy.Choice
	Level       = strategy.Level
	Parallelism = strategy.Parallelism
	Place       = strategy.Place
	Updater     = strategy.Updater
	Activations = strategy.Activations
)

// See package strategy.
const (
	SaveAll       = strategy.SaveAll
	SaveMatmuls   = strategy.SaveMatmuls
	SaveAttention = strategy.SaveAttention
	SaveNone      = strategy.SaveNone

	ZeRO1         = strategy.ZeRO1
	ZeRO2         = strategy.ZeRO2
	ZeRO3         = strategy.ZeRO3
	ModelParallel = strategy.ModelParallel
	Pipeline      = strategy.Pipeline

	ByDevice = strategy.ByDevice
	ByCPU    = strategy.ByCPU
	ByBoth   = strategy.ByBoth

	Saved      = strategy.Saved
	Recomputed = strategy.Recomputed
)

// See package strategy.
var (
	Uniform      = strategy.Uniform
	Parallelisms = strategy.Parallelisms
	Updaters     = strategy.Updaters
)

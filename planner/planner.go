// Package planner turns a model, a machine and a goal into a plan.
//
// A Choice says what is stored where and what is computed twice. Any choice can be written
// as a plan; the search tries choices, forecasts them on the simulator, and takes the
// fastest that fits, with the reasons why the others were not taken.
//
//	site, err := planner.SiteOf(machine, "gpu0", dtype.BF16)
//	p, err := planner.Make(model, planner.Goal{Optimizer: adam}, site)
//	fmt.Println(p.Strategy, p.Forecast.StepSeconds)
//
// The parts, each over those before it:
//
//	strategy  what can be chosen: strategies, one file each, as data
//	goal      what is wanted and where: Goal, Site, FitError
//	pass      plans made runnable: lifetimes, offsets, waits, copies that carry over
//	layout    the model laid out: slabs, batches, programs with places
//	emit      the instructions of a choice
//	forecast  plans on virtual devices: seconds, and what binds
//	search    candidates, estimates, climbing, miniatures of deep models
//	advise    requests: what would fit, the largest batch, comparisons, savings
//
// This package is what callers need of the others, under one name.
package planner

import (
	"spillway/planner/advise"
	"spillway/planner/forecast"
	"spillway/planner/goal"
	"spillway/planner/search"
)

// What is wanted, and where: see package goal.
type (
	Goal      = goal.Goal
	Optimizer = goal.Optimizer
	Site      = goal.Site
	Disk      = goal.Disk
	Kernels   = goal.Kernels
	FitError  = goal.FitError
	FitOption = goal.FitOption
	Step      = search.Step
	Rows      = search.Rows
)

// What can be asked: see package advise.
type (
	Request  = advise.Request
	Batch    = advise.Batch
	Largest  = advise.Largest
	Compared = advise.Compared
	Setting  = advise.Setting
	Saving   = advise.Saving
	Usage    = advise.Usage
)

// Alignment of buffers: see package goal.
const Alignment = goal.Alignment

// Functions of the parts.
var (
	Make           = search.Make
	Build          = search.Build
	Rebuild        = search.Rebuild
	WithEvaluation = search.WithEvaluation
	WithSteps      = search.WithSteps
	ForDecoding    = search.ForDecoding
	Filled         = search.Filled
	AtPositions    = search.AtPositions
	Timeline       = forecast.Timeline
	Rehearse       = forecast.Rehearse
	CallTimes      = forecast.CallTimes
	Savings        = advise.Savings
	SiteOf         = goal.SiteOf
	FullStates     = goal.FullStates
)

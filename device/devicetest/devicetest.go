// Package devicetest is the conformance suite every backend passes: each op on
// all its cases against the plain reference, and the promises of package device
// about memory, queues, events and errors.
//
// Plain is the slow right device next to the fast ones: it runs the references.
package devicetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	_ "spillway/optim" // registers the updates, so that they are tried too
)

// Options of Run.
type Options struct {
	// DTypes of activations and weights to try; f32 if empty.
	DTypes []dtype.Type
	// Complete: a case without a kernel fails, those of fused ops aside. Otherwise it is
	// skipped and listed.
	Complete bool
	// Lacks tells which calls a complete device has no kernel for all the same; nil
	// for none.
	Lacks func(op.Call) bool
	// Bound is how far an output of a case may be from the reference; the
	// function Bound if nil.
	Bound func(c op.Case, output int) Limit
	// Fail makes something given to the queue fail when it runs, for devices that
	// can be made to; nil skips what needs it.
	Fail func(d device.Device, q device.Queue) error

	patience time.Duration // how long a check may take; 0 is five minutes
}

// check is one promise. It gets a fresh device, which is closed afterwards: what
// it leaves allocated is a failure.
type check struct {
	name   string
	run    func(d device.Device, o Options) error
	closes bool // closes the device itself
	// Most checks are made on a rig with memories of so many bytes instead.
	onRig func(r *rig)
	bytes int
}

// errSkip is wrapped by checks that a device gives no occasion for.
var errSkip = errors.New("not applicable")

// Run holds a backend against all promises. open gives a fresh device each time.
func Run(t *testing.T, open func(t *testing.T) device.Device, o Options) {
	if len(o.DTypes) == 0 {
		o.DTypes = []dtype.Type{dtype.F32}
	}
	if o.Bound == nil {
		o.Bound = Bound
	}
	for _, c := range slices.Concat(memoryChecks, queueChecks) {
		t.Run(c.name, func(t *testing.T) {
			err := c.on(open(t), o)
			if errors.Is(err, errSkip) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for _, d := range o.DTypes {
		t.Run("kernels "+d.String(), func(t *testing.T) { runCases(t, open(t), d, o) })
	}
}

// on carries the check out and closes the device.
func (c check) on(d device.Device, o Options) error {
	patience := cmp.Or(o.patience, 5*time.Minute)
	err := within(patience, func() error {
		if c.onRig != nil {
			return try(d, c.bytes, c.onRig)
		}
		return c.run(d, o)
	})
	if c.closes {
		return err
	}
	if late := d.Close(); late != nil && err == nil {
		err = fmt.Errorf("closing the device: %w", late)
	}
	return err
}

// runCases tries every case on one device.
func runCases(t *testing.T, d device.Device, dt dtype.Type, o Options) {
	defer func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	}()
	missing := map[string]int{}
	for _, c := range op.Cases(dt) {
		t.Run(c.Name, func(t *testing.T) {
			err := tryCase(d, c, o.Bound)
			var none *device.NoKernelError
			if errors.As(err, &none) && (!o.Complete || none.Call.Kind.Fused() || o.Lacks != nil && o.Lacks(none.Call)) {
				missing[string(c.Call.Kind)]++
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	if len(missing) > 0 {
		t.Logf("cases without a kernel, by op: %v", missing)
	}
}

// within runs f and gives up after a while, which shows queues that wait for ever.
func within(limit time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("not done after %v: a queue waits for something that does not come", limit)
	}
}

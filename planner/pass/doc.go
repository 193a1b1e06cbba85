// Package pass turns a list of instructions into a plan that can run: it works on any plan
// and knows neither models nor strategies.
//
// The emitter writes instructions in the order they are issued, with buffers that have a
// size and no place. Then
//
//	m := pass.NewMemory(p, 256, nil) // from which instruction to which is a buffer alive?
//	m.Pack()                         // offsets: buffers that are never alive together share bytes
//	m.Finish()                       // a free behind the last use of each buffer
//	pass.Order(p)                    // which instructions of other lanes each must wait for
//
// Packing comes before ordering, since an instruction also waits for those that used the
// same bytes before. Order finds too which copies at the end of an iteration may carry over
// into the next.
package pass

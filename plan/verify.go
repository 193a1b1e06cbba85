package plan

import "fmt"

// Verify says whether a plan is sound, whoever wrote it. The rules, by number:
//
//	P1   arenas fit their devices' budgets, buffers fit their arenas, devices are
//	     listed rank by rank
//	P2   homes share no bytes with any buffer
//	P3   programs are well typed; their inner values never overlap while alive
//	P4   instructions name what exists, bind every region their program uses with enough
//	     bytes, and touch memory of their own rank
//	P5   nothing is read before it is written; no two live buffers share bytes;
//	     everything but homes is freed, once, after its last use
//	P6   instructions of different lanes that touch the same bytes, one of them writing,
//	     are ordered by After
//	P7   the pieces of a trained slab cover it, cut no block of a state, and are updated
//	     once each, after its last gradient; what an update changed away from home is
//	     moved home
//	P8   deferred instructions are moves and updates. A deferred update takes the gradient
//	     that is stored at home, before any run reads the weights it changes, before the
//	     norm is computed anew, and before a new gradient goes home, which one does; runs
//	     read the weights it made
//	P9   what carries over is a copy from a device to the host that only later iterations
//	     read, in a plan without a disk, or of the next batch, the last of its lane; over two iterations in a
//	     row, instructions that touch the same bytes, one of them writing, are ordered by
//	     AfterPrevious too
//	P10  a captured iteration is of one device, has at most MaxCaptured launches, and
//	     carries nothing over but the next batch
//	P11  the table of an indirect buffer is a plain buffer in memory of the same device;
//	     pages fill the buffer; indirect buffers are not moved
//	P12  further phases have names of their own, obey P4, P5, P6 and P10 by themselves, and
//	     leave updates, the next batch, and what reaches into other iterations, to the main phase
//	P13  the next batch comes by copies from the host that are the last instructions and carry
//	     over, one for each of its homes, and is taken by a copy that waits for nothing of its
//	     own iteration, before anything else runs on the device; nothing else touches it
func Verify(p *Plan) error {
	err := check(p, []rule{
		{"P1", verifyArenas}, {"P2", verifyHomes}, {"P3", verifyPrograms}, {"P4", verifyInstructions},
		{"P11", verifyIndirect}, {"P5", verifyLives}, {"P6", verifyOrder}, {"P7", verifyUpdates},
		{"P8", verifyDeferred}, {"P9", verifyCarryOver}, {"P13", verifyNextBatch}, {"P10", verifyCaptured}, {"P12", verifyPhases},
	})
	if err != nil {
		return fmt.Errorf("the plan for %s is not sound %w", p.Model, err)
	}
	for i := range p.Phases {
		ph, err := p.Phase(p.Phases[i].Name)
		if err == nil {
			err = check(ph, []rule{{"P4", verifyInstructions}, {"P11", verifyIndirect}, {"P5", verifyLives}, {"P6", verifyOrder}, {"P13", verifyNoNextBatch}, {"P10", verifyCaptured}})
		}
		if err != nil {
			return fmt.Errorf("phase %s of the plan for %s is not sound %w", p.Phases[i].Name, p.Model, err)
		}
	}
	return nil
}

type rule struct {
	name   string
	verify func(*Plan) error
}

// check holds a plan against rules, in order: later ones rely on earlier ones.
func check(p *Plan, rules []rule) error {
	for _, r := range rules {
		if err := r.verify(p); err != nil {
			return fmt.Errorf("(%s): %w", r.name, err)
		}
	}
	return nil
}

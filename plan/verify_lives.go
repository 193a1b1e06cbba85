package plan

import (
	"fmt"

	"spillway/internal/tenancy"
)

// verifyLives: P5, what is alive when.
func verifyLives(p *Plan) error {
	lives := make([]lifeState, len(p.Buffers))
	tenants := make([]tenancy.Map, len(p.Arenas)) // by arena: who had which bytes last
	for c := range p.Lives() {
		b := &p.Buffers[c.Buffer]
		if c.Instruction < 0 {
			continue // a home, alive for ever
		}
		if err := p.verifyLife(c, lives, &tenants[b.Arena]); err != nil {
			return fmt.Errorf("instruction %d, %s: %w", c.Instruction, p.Instructions[c.Instruction].Verb, err)
		}
	}
	for id, l := range lives {
		if l == alive {
			return fmt.Errorf("buffer %s is never freed", p.Buffers[id].Name)
		}
	}
	return nil
}

// lifeState of a buffer that is not a home.
type lifeState byte

const (
	unborn lifeState = iota
	alive
	freed
)

// verifyLife checks that a life begins or ends as it may.
func (p *Plan) verifyLife(c LifeChange, lives []lifeState, tenants *tenancy.Map) error {
	b, life := &p.Buffers[c.Buffer], &lives[c.Buffer]
	switch {
	case !c.Alive && (b.Home || *life != alive):
		return fmt.Errorf("buffer %s is freed but is a home or not alive", b.Name)
	case !c.Alive:
		*life = freed
		return nil
	case *life == freed:
		return fmt.Errorf("buffer %s is used after its free", b.Name)
	case c.read:
		return fmt.Errorf("buffer %s is read before it is written", b.Name)
	}
	*life = alive
	for _, o := range tenants.Take(c.Buffer, b.Offset, b.Offset+b.Bytes) {
		if lives[o] == alive {
			return fmt.Errorf("buffers %s and %s are alive in the same bytes", p.Buffers[o].Name, b.Name)
		}
	}
	return nil
}

package device

import (
	"fmt"

	"spillway/op"
)

// Arrange lays out the operands, outputs and scratch memory of a call one after the other, and
// returns how many bytes they take together; Place gives them their memory. Outputs that are
// computed in place share the buffer of their operand.
func Arrange(call op.Call, workspace, alignment int64) (l *Launch, bytes int64) {
	align := max(alignment, 1)
	next := func(size int64) Buffer {
		at := (bytes + align - 1) / align * align
		bytes = at + size
		return Buffer{Offset: at, Bytes: size}
	}
	l = &Launch{}
	for _, t := range call.In {
		l.Buffers = append(l.Buffers, next(t.Bytes()))
	}
	inPlace := call.InPlace()
	for i, t := range call.Out {
		if i < len(inPlace) {
			l.Buffers = append(l.Buffers, l.Buffers[inPlace[i]])
			continue
		}
		l.Buffers = append(l.Buffers, next(t.Bytes()))
	}
	l.Workspace = next(workspace)
	return l, bytes
}

// Check refuses a launch whose buffers do not fit a call, and buffers that reach refuses.
func (l *Launch) Check(call op.Call, workspace int64, reach func(b Buffer, t op.Type) error) error {
	if l == nil {
		return fmt.Errorf("nothing to launch on")
	}
	if want := len(call.In) + len(call.Out); len(l.Buffers) != want {
		return fmt.Errorf("%d buffers for %d operands and outputs", len(l.Buffers), want)
	}
	for i, b := range l.Buffers {
		types, k := call.In, i
		if i >= len(types) {
			types, k = call.Out, i-len(types)
		}
		if want := types[k].Bytes(); b.Bytes != want {
			return fmt.Errorf("buffer %d has %d bytes, %v has %d", i, b.Bytes, types[k], want)
		}
		if err := reach(b, types[k]); err != nil {
			return fmt.Errorf("buffer %d %w", i, err)
		}
	}
	if workspace == 0 {
		return nil
	}
	if l.Workspace.Bytes < workspace {
		return fmt.Errorf("workspace of %d bytes, %d are needed", l.Workspace.Bytes, workspace)
	}
	if err := reach(l.Workspace, op.Type{}); err != nil {
		return fmt.Errorf("the workspace %w", err)
	}
	return nil
}

// Check refuses a buffer that is not wholly inside its memory.
func (b Buffer) Check() error {
	switch {
	case b.Memory == nil:
		return fmt.Errorf("has no memory")
	case b.Offset < 0 || b.Bytes < 0 || b.Offset > b.Memory.Size()-b.Bytes:
		return fmt.Errorf("is %d bytes at %d of a memory of %d", b.Bytes, b.Offset, b.Memory.Size())
	}
	return nil
}

// CheckAligned refuses a buffer whose offset is not a multiple.
func (b Buffer) CheckAligned(to int64) error {
	if b.Offset%to != 0 {
		return fmt.Errorf("is at offset %d, not a multiple of %d", b.Offset, to)
	}
	return nil
}

// Place puts all buffers of a launch into a memory, at the offsets they have.
func (l *Launch) Place(m Memory) {
	for i := range l.Buffers {
		l.Buffers[i].Memory = m
	}
	l.Workspace.Memory = m
}

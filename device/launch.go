package device

import "spillway/op"

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

// Place puts all buffers of a launch into a memory, at the offsets they have.
func (l *Launch) Place(m Memory) {
	for i := range l.Buffers {
		l.Buffers[i].Memory = m
	}
	l.Workspace.Memory = m
}

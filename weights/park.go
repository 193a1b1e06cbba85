package weights

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"spillway/executor"
	"spillway/internal/offheap"
	"spillway/internal/vfs"
	"spillway/op"
	"spillway/plan"
	"spillway/quant"
)

// Parked is the weights and the optimizer state of an executor, bit for bit, while no
// executor holds them. It must be closed.
type Parked struct {
	bytes int64
	of    func(*executor.Executor) []executor.Tensor // which tensors were parked
	at    map[parkedName]parkedAt
	store storage
}

// parkedName tells the weight of a param from each of its optimizer states.
type parkedName struct{ param, state string }

// parkedAt is where a tensor is in the storage.
type parkedAt struct {
	t      op.Type
	offset int64
}

// storage is memory or a file.
type storage interface {
	WriteAt(p []byte, at int64) (int, error)
	ReadAt(p []byte, at int64) (int, error)
	Close() error
}

// ParkedBytes is how much memory parking an executor takes.
func ParkedBytes(e *executor.Executor) int64 { return bytesOf(tensorsOf(e)) }

func bytesOf(list []executor.Tensor) (n int64) {
	for _, t := range list {
		n += t.Bytes()
	}
	return n
}

func tensorsOf(e *executor.Executor) []executor.Tensor { return append(e.Weights(), e.States()...) }

// Park copies what an executor holds to host memory, or to a file in a folder if one
// is named. The file is gone with Close.
func Park(e *executor.Executor, folder string) (*Parked, error) { return park(e, folder, tensorsOf) }

// ParkTrained is Park without frozen weights, which Restore then leaves as they are.
func ParkTrained(e *executor.Executor, folder string) (*Parked, error) {
	return park(e, folder, func(e *executor.Executor) []executor.Tensor {
		return slices.DeleteFunc(tensorsOf(e), func(t executor.Tensor) bool { return t.Param.Frozen() })
	})
}

func park(e *executor.Executor, folder string, of func(*executor.Executor) []executor.Tensor) (*Parked, error) {
	p := &Parked{bytes: bytesOf(of(e)), of: of, at: map[parkedName]parkedAt{}}
	var err error
	if p.store, err = open(p.bytes, folder); err != nil {
		return nil, fmt.Errorf("parking %d bytes of weights and state: %w", p.bytes, err)
	}
	var end int64
	for _, t := range of(e) {
		at := parkedAt{t.Type, end}
		err := e.Read(t, func(offset int64, chunk []byte) error {
			_, err := p.store.WriteAt(chunk, at.offset+offset)
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("parking %s: %w", t.Param.Name, err), p.Close())
		}
		p.at[parkedName{t.Param.Name, t.State}], end = at, end+t.Bytes()
	}
	return p, nil
}

// Bytes that are parked.
func (p *Parked) Bytes() int64 { return p.bytes }

// Restore writes to an executor what was parked. Its plan must have the same params with
// the same optimizer states; states of another type are converted, number by number.
func (p *Parked) Restore(e *executor.Executor) error {
	tensors := p.of(e)
	if len(tensors) != len(p.at) {
		return fmt.Errorf("%d tensors of weights and state were parked, the plan has %d", len(p.at), len(tensors))
	}
	return p.write(e, tensors)
}

// RestoreChanged is Restore for a plan that trains other params, or stores other things of them.
// What was not parked begins: master weights and averages as the weights are, states at zero.
func (p *Parked) RestoreChanged(e *executor.Executor) error {
	var had []executor.Tensor
	for _, t := range p.of(e) {
		name := parkedName{t.Param.Name, t.State}
		if _, ok := p.at[name]; ok {
			had = append(had, t)
			continue
		}
		from, whole := p.at[parkedName{t.Param.Name, ""}]
		if master, ok := p.at[parkedName{t.Param.Name, executor.Master}]; ok {
			from = master
		}
		begins := t.State == executor.Master || t.State == plan.Average
		if begins && (!whole || !convertible(from.t, t.Type)) {
			return fmt.Errorf("%s %s was not parked, and its weights as %v give no %v", t.Param.Name, t.State, from.t, t.Type)
		}
		other := converted{from.t, t.Type, p.store, from.offset}
		if err := e.Write(t, func(offset int64, chunk []byte) error {
			if !begins {
				return zeroState(t.Type, offset, chunk)
			}
			_, err := other.ReadAt(chunk, offset)
			return err
		}); err != nil {
			return err
		}
	}
	return p.write(e, had)
}

// zeroState fills a part of the storage of a state with that of zeros.
func zeroState(t op.Type, offset int64, chunk []byte) error {
	clear(chunk)
	if !t.DType.Block() {
		return nil
	}
	raw := make([]byte, t.Bytes())
	if err := quant.Encode(t.DType, raw, make([]float32, t.Shape.Elements()), int(t.Shape.Last())); err != nil {
		return err
	}
	copy(chunk, raw[offset:])
	return nil
}

// Weights writes the weights alone, for a plan without optimizer state.
func (p *Parked) Weights(e *executor.Executor) error { return p.write(e, e.Weights()) }

func (p *Parked) write(e *executor.Executor, tensors []executor.Tensor) error {
	for _, t := range tensors {
		at, ok := p.at[parkedName{t.Param.Name, t.State}]
		same := ok && at.t.Equal(t.Type)
		if !same && !(ok && t.State != "" && convertible(at.t, t.Type)) {
			return fmt.Errorf("%s %s was parked as %v, the plan has it as %v", t.Param.Name, t.State, at.t, t.Type)
		}
		other := converted{at.t, t.Type, p.store, at.offset}
		err := e.Write(t, func(offset int64, chunk []byte) (err error) {
			if same {
				_, err = p.store.ReadAt(chunk, at.offset+offset)
			} else {
				_, err = other.ReadAt(chunk, offset)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close gives the memory or the file back.
func (p *Parked) Close() error { return p.store.Close() }

// open gives memory, or in a folder a file without a name: it is gone when it is closed, or
// the process ends.
func open(bytes int64, folder string) (storage, error) {
	if folder == "" {
		r, err := offheap.Alloc(bytes, false)
		return memory{r}, err
	}
	f, err := os.CreateTemp(folder, "parked-*")
	if err != nil {
		return nil, err
	}
	gone, err := vfs.Unname(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return parkedFile{f, gone}, nil
}

// parkedFile is a file without a name.
type parkedFile struct {
	*os.File
	gone func() error // removes it where it still has one
}

func (f parkedFile) Close() error { return errors.Join(f.File.Close(), f.gone()) }

// memory is storage outside the Go heap.
type memory struct{ region *offheap.Region }

func (m memory) WriteAt(p []byte, at int64) (int, error) { return copy(m.region.Bytes()[at:], p), nil }
func (m memory) ReadAt(p []byte, at int64) (int, error)  { return copy(p, m.region.Bytes()[at:]), nil }
func (m memory) Close() error                            { return m.region.Free() }

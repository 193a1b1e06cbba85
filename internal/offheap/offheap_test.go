package offheap

import (
	"runtime"
	"testing"
)

func TestAlloc(t *testing.T) {
	before := Mapped()
	for _, size := range []int64{0, 1, 4095, 4096, 4097, 3<<20 + 5} {
		r, err := Alloc(size, true)
		if err != nil {
			t.Fatal(err)
		}
		b := r.Bytes()
		if int64(len(b)) != size || int64(cap(b)) != size {
			t.Errorf("asked for %d bytes, got %d (capacity %d)", size, len(b), cap(b))
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("byte %d of a new region is %d", i, b[i])
			}
			b[i] = byte(i)
		}
		if grown := Mapped() - before; grown < size {
			t.Errorf("%d bytes mapped for %d", grown, size)
		}
		if err := r.Free(); err != nil {
			t.Error(err)
		}
		if r.Bytes() != nil {
			t.Error("a freed region still has bytes")
		}
		if err := r.Free(); err == nil {
			t.Error("freed twice without an error")
		}
	}
	if Mapped() != before {
		t.Errorf("%d bytes still mapped", Mapped()-before)
	}
}

func TestAllocRefuses(t *testing.T) {
	before := Mapped()
	for _, size := range []int64{-1, 1 << 61} {
		if r, err := Alloc(size, false); err == nil {
			t.Errorf("got %d bytes", len(r.Bytes()))
		}
	}
	if Mapped() != before {
		t.Errorf("refused regions count %d bytes", Mapped()-before)
	}
}

// A region must not count as Go heap, or the garbage collector would let the heap grow.
func TestHeapDoesNotGrow(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("memory comes from the Go heap here")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := Alloc(64<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if err := r.Free(); err != nil {
		t.Error(err)
	}
}

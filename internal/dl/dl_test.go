package dl

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// libc opens the system's C library, which every system with libraries has.
func libc(t testing.TB) *Library {
	t.Helper()
	name := "libc.so.6"
	if runtime.GOOS == "darwin" {
		name = "/usr/lib/libSystem.B.dylib"
	}
	l, err := Open(name)
	if err != nil {
		t.Skipf("no C library to call: %v", err)
	}
	return l
}

func find(t testing.TB, name string) Func {
	t.Helper()
	f, err := libc(t).Func(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCall(t *testing.T) {
	text := []byte("spillway\x00")
	if n := find(t, "strlen").Call(uintptr(unsafe.Pointer(&text[0]))); n != 8 {
		t.Errorf("strlen gives %d, want 8", n)
	}
	number := []byte("-42\x00")
	if n := int32(find(t, "atoi").Call(uintptr(unsafe.Pointer(&number[0])))); n != -42 {
		t.Errorf("atoi gives %d, want -42", n)
	}
}

// snprintf takes any number of arguments: nine arrive, in registers and on the stack, in
// the order given.
func TestManyArguments(t *testing.T) {
	out := make([]byte, 256)
	format := []byte(strings.Repeat("%ld ", 13) + "\x00")
	args := []uintptr{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9}
	find(t, "snprintf").Call(append([]uintptr{uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)), uintptr(unsafe.Pointer(&format[0]))}, args...)...)
	runtime.KeepAlive(format)
	if got, want := Text(uintptr(unsafe.Pointer(&out[0])), len(out)), "3 1 4 1 5 9 2 6 5 3 5 8 9 "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestManyGoroutines(t *testing.T) {
	f := find(t, "labs")
	bad := make(chan uintptr, 8)
	for g := range 8 {
		go func() {
			for i := range 2000 {
				if got := f.Call(uintptr(-(g*10000 + i))); got != uintptr(g*10000+i) {
					bad <- got
					return
				}
			}
			bad <- 0
		}()
	}
	for range 8 {
		if n := <-bad; n != 0 {
			t.Errorf("labs gave %d", n)
		}
	}
}

func TestPreparedCallsDoNotAllocate(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("calls go through purego here")
	}
	f, a := find(t, "labs"), &Args{7}
	if n := testing.AllocsPerRun(100, func() { f.With(a) }); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}

func TestMissing(t *testing.T) {
	if _, err := Open("libspillway-that-is-not.so"); err == nil || !strings.Contains(err.Error(), "libspillway-that-is-not.so") {
		t.Errorf("opening a library that is not there gives %v", err)
	}
	if _, err := libc(t).Func("no_such_function"); err == nil || !strings.Contains(err.Error(), "no_such_function") {
		t.Errorf("looking up a function that is not there gives %v", err)
	}
}

func TestText(t *testing.T) {
	b := []byte("abc\x00def")
	if s := Text(uintptr(unsafe.Pointer(&b[0])), len(b)); s != "abc" {
		t.Errorf("got %q", s)
	}
	if s := Text(uintptr(unsafe.Pointer(&b[0])), 2); s != "ab" {
		t.Errorf("got %q within 2 bytes", s)
	}
	if s := Text(0, 8); s != "" {
		t.Errorf("got %q from no address", s)
	}
}

func BenchmarkCall(b *testing.B) {
	f := find(b, "labs")
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			f.Call(7)
		}
	})
	b.Run("prepared", func(b *testing.B) {
		a := &Args{7}
		for b.Loop() {
			f.With(a)
		}
	})
}

package cuda

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// What goes wrong on a real GPU. What would spoil the GPU's context for other tests
// happens in a process of its own: this program again, which a variable tells what to do.
const child = "SPILLWAY_TEST_CHILD"

// again starts this program anew for one test, and gives what it reads and says.
func again(t *testing.T, test string) (in io.WriteCloser, out *bufio.Reader, cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run", "^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+test)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, bufio.NewReader(said), cmd
}

// inChild skips a test that is not the purpose of this process.
func inChild(t *testing.T) {
	t.Helper()
	if os.Getenv(child) != t.Name() {
		t.Skip("runs in a process that another test starts")
	}
}

// When another program takes nine tenths of the GPU, a device that is open says so with
// the numbers, and one that is opened then offers what is left.
func TestAnotherProgramTakesTheGPU(t *testing.T) {
	early := openGPU(t, Options{})
	defer early.Close()
	in, out, cmd := again(t, "TestHoldTheGPU")
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("the other program ended: %v", err)
		}
		if strings.Contains(line, "holding") {
			break
		}
	}
	_, err := early.Alloc(early.Info().Limit / 2)
	var full *device.OutOfMemoryError
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("half of the GPU although nine tenths are taken: %v", err)
	}
	late := openGPU(t, Options{})
	limit, whole := late.Info().Limit, early.Info().Limit
	if limit > whole/8 {
		t.Errorf("%d of %d bytes are offered although nine tenths are taken", limit, whole)
	}
	m, err := late.Alloc(limit)
	if err != nil {
		t.Errorf("what is offered cannot be had: %v", err)
	} else if err := m.Free(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(late.Close(), in.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

// TestHoldTheGPU is the other program: it holds nine tenths until it is asked to end.
func TestHoldTheGPU(t *testing.T) {
	inChild(t)
	d := openGPU(t, Options{})
	defer d.Close()
	m, err := d.Alloc(d.Info().Limit / 10 * 9)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("holding")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Error(err)
	}
	if err := m.Free(); err != nil {
		t.Error(err)
	}
}

// A kernel that writes where there is no memory ends the context: the error names the
// op, comes out once, and the process goes on to close the device.
func TestLaunchOutOfRange(t *testing.T) {
	openGPU(t, Options{}).Close()
	_, out, cmd := again(t, "TestWriteNowhere")
	said, err := io.ReadAll(out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Errorf("%v:\n%s", err, said)
	}
	for _, word := range []string{"scale(f32[64])", "CUDA_ERROR_ILLEGAL_ADDRESS", "open the device anew", "closed cleanly"} {
		if !strings.Contains(string(said), word) {
			t.Errorf("no %q in\n%s", word, said)
		}
	}
}

// TestWriteNowhere launches a kernel on an address that nobody has.
func TestWriteNowhere(t *testing.T) {
	inChild(t)
	d := openGPU(t, Options{})
	c, err := op.Make(op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.F32, Shape: shape.Of(64)})
	if err != nil {
		t.Fatal(err)
	}
	k, err := d.Kernel(c)
	q, bad := d.Queue("compute")
	if err := errors.Join(err, bad); err != nil {
		t.Fatal(err)
	}
	nowhere := device.Buffer{Memory: &memory{device: d, size: 256, at: 1 << 12}, Bytes: 256}
	if err := q.Launch(k, &device.Launch{Buffers: []device.Buffer{nowhere, nowhere}}); err != nil {
		t.Fatal(err)
	}
	fmt.Println(q.Sync())
	if err := q.Sync(); err != nil {
		t.Errorf("reported again: %v", err)
	}
	if err := q.Launch(k, &device.Launch{Buffers: []device.Buffer{nowhere, nowhere}}); err == nil {
		t.Error("a launch was taken after the context was lost")
	}
	if err := errors.Join(q.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	fmt.Println("closed cleanly")
}

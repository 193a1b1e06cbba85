package view_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"hash/crc32"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"spillway/plan"
	"spillway/view"
)

// unpickle reads the opcodes that snapshots have, as the viewer's reader does.
func unpickle(t *testing.T, b []byte) any {
	t.Helper()
	var stack []any
	var marks []int
	cut := func() []any {
		at := marks[len(marks)-1]
		marks = marks[:len(marks)-1]
		items := append([]any(nil), stack[at:]...)
		stack = stack[:at]
		return items
	}
	for i := 0; i < len(b); {
		op := b[i]
		i++
		switch op {
		case 0x80:
			if b[i] < 2 || b[i] > 4 {
				t.Fatalf("protocol %d", b[i])
			}
			i++
		case '}':
			stack = append(stack, map[string]any{})
		case ']':
			stack = append(stack, &[]any{})
		case '(':
			marks = append(marks, len(stack))
		case 'u':
			items := cut()
			for k := 0; k < len(items); k += 2 {
				stack[len(stack)-1].(map[string]any)[items[k].(string)] = items[k+1]
			}
		case 'e':
			items := cut()
			list := stack[len(stack)-1].(*[]any)
			*list = append(*list, items...)
		case 'X':
			n := int(binary.LittleEndian.Uint32(b[i:]))
			stack = append(stack, string(b[i+4:i+4+n]))
			i += 4 + n
		case 'J':
			stack = append(stack, int64(int32(binary.LittleEndian.Uint32(b[i:]))))
			i += 4
		case 0x8a:
			stack = append(stack, int64(binary.LittleEndian.Uint64(b[i+1:])))
			i += 1 + int(b[i])
		case '.':
			return stack[0]
		default:
			t.Fatalf("opcode %#x", op)
		}
	}
	t.Fatal("no end")
	return nil
}

// A snapshot has, for each tier, allocations whose sum is the plan's peak of live bytes, and
// what is left at its end are the homes.
func TestMemorySnapshot(t *testing.T) {
	for name, p := range plans(t) {
		var b bytes.Buffer
		if err := view.WriteMemorySnapshot(&b, p); err != nil {
			t.Fatal(err)
		}
		top := unpickle(t, b.Bytes()).(map[string]any)
		m := view.MemoryOf(p)
		traces := *top["device_traces"].(*[]any)
		if len(traces) != len(m.Tiers) {
			t.Fatalf("%s: %d traces of %d tiers", name, len(traces), len(m.Tiers))
		}
		for d, tr := range traces {
			var now, most, reserved int64
			for _, e := range *tr.(*[]any) {
				event := e.(map[string]any)
				size := event["size"].(int64)
				switch event["action"] {
				case "segment_alloc":
					reserved += size
				case "alloc":
					now += size
				case "free_completed":
					now -= size
				}
				most = max(most, now)
			}
			if reserved != m.Tiers[d].Reserved || most != m.Tiers[d].Peak {
				t.Errorf("%s, %s: %d reserved and %d at most, the plan has %d and %d", name, m.Tiers[d].Tier, reserved, most, m.Tiers[d].Reserved, m.Tiers[d].Peak)
			}
			var left int64
			for _, s := range *top["segments"].(*[]any) {
				segment := s.(map[string]any)
				if segment["device"].(int64) == int64(d) {
					left += segment["active_size"].(int64)
					var filled int64
					for _, b := range *segment["blocks"].(*[]any) {
						filled += b.(map[string]any)["size"].(int64)
					}
					if filled != segment["total_size"].(int64) {
						t.Errorf("%s: blocks fill %d of %d bytes", name, filled, segment["total_size"])
					}
				}
			}
			if left != now {
				t.Errorf("%s, %s: %d bytes are left, segments have %d", name, m.Tiers[d].Tier, now, left)
			}
		}
	}
}

// A second reader of event files finds every loss.
func TestTensorBoard(t *testing.T) {
	run, err := view.Open(sampleLog(t, filepath.Join(t.TempDir(), "run"), 30, 2, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var out bytes.Buffer
	if err := run.WriteTensorBoard(&out); err != nil {
		t.Fatal(err)
	}
	if *keep != "" {
		if err := os.WriteFile(*keep, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(b []byte, want uint32) {
		t.Helper()
		crc := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		if masked := (crc>>15 | crc<<17) + 0xa282ead8; masked != want {
			t.Fatalf("a checksum is %x, want %x", want, masked)
		}
	}
	records, losses := 0, 0
	for b := out.Bytes(); len(b) > 0; records++ {
		n := binary.LittleEndian.Uint64(b)
		check(b[:8], binary.LittleEndian.Uint32(b[8:]))
		data := b[12 : 12+n]
		check(data, binary.LittleEndian.Uint32(b[12+n:]))
		b = b[16+n:]
		if at := bytes.Index(data, []byte("train/loss\x15")); at >= 0 {
			loss := math.Float32frombits(binary.LittleEndian.Uint32(data[at+len("train/loss")+1:]))
			if want := float32(run.Iterations[losses].Loss); loss != want {
				t.Errorf("loss %d is %v, want %v", losses, loss, want)
			}
			losses++
		}
	}
	if records != 31 || losses != 30 {
		t.Errorf("%d records, %d losses", records, losses)
	}
}

var tensorboard = flag.String("tensorboard", "", "a Python that has TensorBoard (pip install tensorboard): it reads our event files")

// TensorBoard itself reads what we write: every step of every metric, with its value.
func TestTensorBoardReadsOurs(t *testing.T) {
	if *tensorboard == "" {
		t.Skip("TensorBoard is a program of its own: name a Python that has it with -tensorboard")
	}
	run, err := view.Open(sampleLog(t, filepath.Join(t.TempDir(), "run"), 30, 2, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	dir := t.TempDir()
	var out bytes.Buffer
	if err := run.WriteTensorBoard(&out); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "events.out.tfevents.1.box"), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	const reads = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
a.Reload()
print(json.dumps({tag: [[e.step, e.value, e.wall_time] for e in a.Scalars(tag)] for tag in a.Tags()["scalars"]}))`
	var failed bytes.Buffer
	cmd := exec.Command(*tensorboard, "-c", reads, dir)
	cmd.Stderr = &failed
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, failed.Bytes())
	}
	var tags map[string][][3]float64
	if err := json.Unmarshal(text, &tags); err != nil {
		t.Fatal(err)
	}
	losses := tags["train/loss"]
	if len(losses) != len(run.Iterations) || len(tags) < 5 {
		t.Fatalf("TensorBoard finds %d losses of %d, and %d tags", len(losses), len(run.Iterations), len(tags))
	}
	for i, it := range run.Iterations {
		if l := losses[i]; int64(l[0]) != it.Step || float32(l[1]) != float32(it.Loss) || math.Abs(l[2]-float64(it.UnixNano)/1e9) > 1e-3 {
			t.Errorf("step %d: TensorBoard has %v, the log a loss of %v at %v", it.Step, l, it.Loss, it.UnixNano)
		}
	}
	t.Logf("TensorBoard reads %d tags, %d losses", len(tags), len(losses))
}

// Forecast and measurement are two processes of one file.
func TestChromeHasBoth(t *testing.T) {
	p := plans(t)["host"]
	run, err := view.Open(sampleLog(t, filepath.Join(t.TempDir(), "run"), 5, 2, p))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	line, err := run.Timeline()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := line.WriteChrome(&out, p); err != nil {
		t.Fatal(err)
	}
	var file struct {
		TraceEvents []struct {
			Ph, Name string
			Pid      int
			Ts       float64
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(out.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	bars, processes := map[int]int{}, map[string]int{}
	type memory struct {
		process int
		name    string
	}
	peaks, last := map[memory]float64{}, map[memory]float64{}
	for _, e := range file.TraceEvents {
		if e.Ph == "X" {
			bars[e.Pid]++
		} else if e.Ph == "C" {
			var sum float64
			for _, bytes := range e.Args {
				sum += bytes.(float64)
			}
			of := memory{e.Pid, e.Name}
			peaks[of] = max(peaks[of], sum)
			if e.Ts < last[of] {
				t.Errorf("%s goes back in time to %v", e.Name, e.Ts)
			}
			last[of] = e.Ts
		} else if e.Name == "process_name" {
			processes[e.Args["name"].(string)] = e.Pid
		}
	}
	working := 0
	for _, s := range p.Instructions {
		if s.Verb != plan.Free {
			working++
		}
	}
	if bars[processes["forecast"]] != working || bars[processes["measured"]] != working {
		t.Errorf("%v of %d instructions, processes %v", bars, working, processes)
	}
	for _, tier := range view.MemoryOf(p).Tiers {
		for name, process := range processes {
			if got := peaks[memory{process, string(tier.Tier) + " memory"}]; got != float64(tier.Peak) {
				t.Errorf("%s has a peak of %v bytes in %s memory, the plan %d", name, got, tier.Tier, tier.Peak)
			}
		}
	}
}

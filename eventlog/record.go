package eventlog

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"spillway/trace"
)

// Start says that a process begins a run, or goes on with it.
type Start struct {
	Time    time.Time `json:"time"`
	Run     string    `json:"run"`   // id: the same in all records of the run
	Model   string    `json:"model"` // its name
	Task    string    `json:"task"`  // train, lora, ...
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Program string    `json:"program,omitempty"` // version of the program
	// Step is the number of steps done before.
	Step     int64 `json:"step"`
	MaxSteps int64 `json:"max_steps,omitempty"`
}

// Setting is one of a run, by the name that flags and recipes have.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Plan is what a run carries out from a step on.
type Plan struct {
	Step int64           `json:"step"` // steps done before
	Plan json.RawMessage `json:"plan"` // as package plan writes it, with its forecast
}

// Resource is what limits the speed of an iteration.
type Resource byte

var resources = []string{"", "compute", "link to device", "link to host", "CPU", "kernel launches", "disk read", "disk write", "memory"}

// ResourceOf finds a resource by the name that forecasts have; 0 for one that is not known.
func ResourceOf(name string) Resource {
	for i, n := range resources {
		if n == name {
			return Resource(i)
		}
	}
	return 0
}

func (r Resource) String() string {
	if int(r) < len(resources) {
		return resources[r]
	}
	return ""
}

// MarshalText writes the name.
func (r Resource) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a name.
func (r *Resource) UnmarshalText(name []byte) error {
	*r = ResourceOf(string(name))
	return nil
}

// Iteration is an optimizer step. Its JSON is a line of train --log: the first keys are those
// of training reports.
type Iteration struct {
	Step       int64   `json:"step"`      // counted from 1
	MaxSteps   int64   `json:"max_steps"` // in all, 0 when not known
	Loss       float64 `json:"loss"`
	GradNorm   float64 `json:"grad_norm,omitempty"` // before clipping; 0 when the plan computes none
	LR         float64 `json:"lr"`
	EvalLoss   float64 `json:"eval_loss,omitempty"` // of the evaluation after it; 0 for none
	Perplexity float64 `json:"eval_perplexity,omitempty"`
	LossScale  float64 `json:"loss_scale,omitempty"`
	Skipped    bool    `json:"skipped,omitempty"` // gradients overflowed, nothing was updated
	StateBytes int64   `json:"state_bytes"`       // of the optimizer, without master weights
	Compressed bool    `json:"compressed,omitempty"`

	Seconds         float64 `json:"seconds_per_step"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	ShareOfRoofline float64 `json:"share_of_roofline"`
	PredictedBytes  int64   `json:"predicted_bytes"` // of the devices, by the plan
	MeasuredBytes   int64   `json:"measured_bytes"`  // of the devices, by their own count; 0 when not known
	ETA             float64 `json:"eta_s"`           // seconds to the last step, 0 when not known

	UnixNano    int64    `json:"unix_nano"`              // when it ended
	Tokens      int64    `json:"tokens"`                 // that are not padding
	FeedSeconds float64  `json:"feed_seconds"`           // of Seconds, in which the batch was made
	Forecast    float64  `json:"forecast_seconds"`       // of a step, by the plan
	Bound       Resource `json:"bound"`                  // what limits it, by the forecast
	Traced      bool     `json:"traced,omitempty"`       // it took longer, since its instructions were timed
	Tiers       Tiers    `json:"tiers"`                  // bytes that the plan reserves
	BestEval    float64  `json:"best_eval,omitempty"`    // eval loss, the lowest so far; 0 for none
	LatestEval  float64  `json:"latest_eval,omitempty"`  // eval loss, 0 for none
	DriverBytes int64    `json:"driver_bytes,omitempty"` // that the driver of GPUs counts for the program
	Resident    int64    `json:"resident_bytes"`         // memory of the process, when it was last looked at
}

// Tiers are bytes of each kind of memory.
type Tiers struct {
	Device int64 `json:"device"`
	Pinned int64 `json:"pinned"`
	Host   int64 `json:"host"`
	Disk   int64 `json:"disk"`
}

// Time is when the iteration ended.
func (it *Iteration) Time() time.Time { return time.Unix(0, it.UnixNano) }

// words of an iteration, in their order in a record. New ones are added at the end.
const iterationWords = 31

const (
	flagSkipped = 1 << iota
	flagCompressed
	flagTraced
)

// append writes the iteration behind b.
func (it *Iteration) append(b []byte) []byte {
	var flags uint64
	for i, set := range [...]bool{it.Skipped, it.Compressed, it.Traced} {
		if set {
			flags |= 1 << i
		}
	}
	float := math.Float64bits
	for _, w := range [iterationWords]uint64{
		uint64(it.Step), uint64(it.MaxSteps), float(it.Loss), float(it.GradNorm), float(it.LR), float(it.EvalLoss), float(it.Perplexity), float(it.LossScale), flags,
		uint64(it.StateBytes), float(it.Seconds), float(it.TokensPerSecond), float(it.ShareOfRoofline), uint64(it.PredictedBytes), uint64(it.MeasuredBytes), float(it.ETA),
		uint64(it.UnixNano), uint64(it.Tokens), float(it.FeedSeconds), float(it.Forecast), uint64(it.Bound),
		uint64(it.Tiers.Device), uint64(it.Tiers.Pinned), uint64(it.Tiers.Host), uint64(it.Tiers.Disk), float(it.BestEval), float(it.LatestEval), uint64(it.DriverBytes), uint64(it.Resident),
		0, 0, // for what comes
	} {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// readIteration is the iteration of a payload. Words that it lacks are zero.
func readIteration(b []byte) (it Iteration) {
	w := wordReader(b)
	next, integer, float := w.next, w.integer, w.float
	integer(&it.Step)
	integer(&it.MaxSteps)
	for _, to := range []*float64{&it.Loss, &it.GradNorm, &it.LR, &it.EvalLoss, &it.Perplexity, &it.LossScale} {
		float(to)
	}
	flags := next()
	it.Skipped, it.Compressed, it.Traced = flags&flagSkipped != 0, flags&flagCompressed != 0, flags&flagTraced != 0
	integer(&it.StateBytes)
	float(&it.Seconds)
	float(&it.TokensPerSecond)
	float(&it.ShareOfRoofline)
	integer(&it.PredictedBytes)
	integer(&it.MeasuredBytes)
	float(&it.ETA)
	integer(&it.UnixNano)
	integer(&it.Tokens)
	float(&it.FeedSeconds)
	float(&it.Forecast)
	it.Bound = Resource(next())
	for _, to := range []*int64{&it.Tiers.Device, &it.Tiers.Pinned, &it.Tiers.Host, &it.Tiers.Disk} {
		integer(to)
	}
	float(&it.BestEval)
	float(&it.LatestEval)
	integer(&it.DriverBytes)
	integer(&it.Resident)
	return it
}

// Trace is when each instruction of an iteration ran, in the order of the plan.
type Trace struct {
	Step int64 `json:"step"` // the iteration, or for a forecast the steps done before the plan
	// Forecast: these are the times that the plan's forecast has.
	Forecast bool          `json:"forecast"`
	Events   []trace.Event `json:"events"` // times are from the start of the iteration
	// Phase of the plan whose instructions these are; "" is its main ones.
	Phase string `json:"phase,omitempty"`
}

// append writes the trace behind b: strings once, then numbers of variable length.
func (t *Trace) append(b []byte) []byte {
	kind := byte(0)
	if t.Forecast {
		kind = 1
	}
	b = binary.AppendVarint(append(b, kind), t.Step)
	ids, list := map[string]uint64{}, []string(nil)
	id := func(s string) uint64 {
		n, has := ids[s]
		if !has {
			n = uint64(len(list))
			ids[s], list = n, append(list, s)
		}
		return n
	}
	for i := range t.Events {
		id(t.Events[i].Name)
		id(t.Events[i].Lane.Device)
		id(t.Events[i].Lane.Queue)
	}
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	b = binary.AppendUvarint(b, uint64(len(t.Events)))
	for i := range t.Events {
		e := &t.Events[i]
		b = append(b, byte(e.Verb))
		for _, s := range [...]string{e.Name, e.Lane.Device, e.Lane.Queue} {
			b = binary.AppendUvarint(b, id(s))
		}
		for _, n := range [...]int64{e.Start, e.End - e.Start, e.Bytes, int64(e.Block), int64(e.MicroBatch)} {
			b = binary.AppendVarint(b, n)
		}
	}
	if t.Phase != "" { // older readers stop before it
		b = append(binary.AppendUvarint(b, uint64(len(t.Phase))), t.Phase...)
	}
	return b
}

var errTrace = errors.New("a trace that ends too early or counts wrongly")

// DecodeTrace is the trace of a record's payload.
func DecodeTrace(payload []byte) (Trace, error) {
	if len(payload) == 0 {
		return Trace{}, errTrace
	}
	return readTrace(payload)
}

// readTrace is the trace of a payload.
func readTrace(b []byte) (t Trace, err error) {
	bad := false
	next := func() (n int64) {
		n, size := binary.Varint(b)
		if size <= 0 {
			bad, b = true, nil
			return 0
		}
		b = b[size:]
		return n
	}
	count := func(least int) int { // of things that take at least so many bytes each
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size)/uint64(least) {
			bad, b = true, nil
			return 0
		}
		b = b[size:]
		return int(n)
	}
	if len(b) == 0 {
		return t, errTrace
	}
	t.Forecast, b = b[0] != 0, b[1:]
	t.Step = next()
	names := make([]string, count(1))
	for i := range names {
		n := count(1)
		names[i], b = string(b[:n]), b[n:]
	}
	name := func() string {
		n, size := binary.Uvarint(b)
		if size <= 0 || n >= uint64(len(names)) {
			bad, b = true, nil
			return ""
		}
		b = b[size:]
		return names[n]
	}
	const leastEvent = 9 // bytes
	t.Events = make([]trace.Event, count(leastEvent))
	for i := range t.Events {
		if bad || len(b) == 0 {
			return t, errTrace
		}
		e := &t.Events[i]
		e.Verb, b = trace.Verb(b[0]), b[1:]
		e.Name = name()
		e.Lane.Device = name()
		e.Lane.Queue = name()
		e.Start = next()
		e.End = e.Start + next()
		e.Bytes = next()
		e.Block = int(next())
		e.MicroBatch = int(next())
	}
	if !bad && len(b) > 0 {
		n := count(1)
		t.Phase = string(b[:n])
	}
	if bad {
		return t, errTrace
	}
	return t, nil
}

// Level of an alert.
type Level string

// The levels.
const (
	Warning Level = "warning"
	Serious Level = "serious" // the run is failing or wastes its time
)

// Alert is something that a person should look at.
type Alert struct {
	Time  time.Time `json:"time"`
	Step  int64     `json:"step"`
	Level Level     `json:"level"`
	Name  string    `json:"name"` // of the rule: "loss-spike"
	Text  string    `json:"text"`
}

// String is the alert in a line, for a terminal.
func (a Alert) String() string {
	if a.Step == 0 {
		return fmt.Sprintf("alert: %s", a.Text)
	}
	return fmt.Sprintf("alert at step %d: %s", a.Step, a.Text)
}

// Checkpoint is one that was saved.
type Checkpoint struct {
	Time time.Time `json:"time"`
	Step int64     `json:"step"`
	Path string    `json:"path"`
}

// Sample is the memory of process and host at a moment, in bytes; 0 where it is not known.
type Sample struct {
	Time          time.Time `json:"time"`
	Resident      int64     `json:"resident"`                 // of the process
	HostAvailable int64     `json:"host_available,omitempty"` // that all processes could still get
	DiskFree      int64     `json:"disk_free,omitempty"`      // where checkpoints are saved
	// Pressure is the share of the last ten seconds in which something waited for memory.
	Pressure float64     `json:"pressure,omitempty"`
	GPUs     []GPUSample `json:"gpus,omitempty"` // in the driver's order
}

// GPUSample is the state of a GPU. What the driver does not report is -1.
type GPUSample struct {
	Busy        int      `json:"busy_percent"`
	MemoryUsed  int64    `json:"memory_used_bytes"`
	In          int64    `json:"link_in_rate"` // bytes per second
	Out         int64    `json:"link_out_rate"`
	LinkWidth   int      `json:"link_width"` // lanes
	LinkBest    int      `json:"link_width_best"`
	Generation  int      `json:"link_generation"`
	BestGen     int      `json:"link_generation_best"`
	Clock       int      `json:"clock_mhz"`
	ClockBest   int      `json:"clock_best_mhz"`
	Lowered     []string `json:"clock_lowered_by,omitempty"`
	Temperature int      `json:"temperature_c"`
	Power       int      `json:"power_mw"`
}

// How a process ended its part of a run.
const (
	Done        = "done"
	Interrupted = "interrupted"
	Failed      = "failed"
)

// End says how a process ended its part of a run.
type End struct {
	Time  time.Time `json:"time"`
	Step  int64     `json:"step"`
	How   string    `json:"how"`
	Error string    `json:"error,omitempty"`
}

// pack compresses what is large and written rarely.
func pack(b []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// unpack is the inverse of pack, up to maxPayload bytes.
func unpack(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, maxPayload+1))
	if err == nil && len(out) > maxPayload {
		err = fmt.Errorf("more than %d bytes", maxPayload)
	}
	return out, err
}

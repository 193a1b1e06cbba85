package eventlog

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"
)

// Generation is a stretch of generating texts: one step of the plan or a few that followed one
// another. Its JSON is a line of generate --log.
type Generation struct {
	Step     int64   `json:"step"`  // of the plan, counted from 1: the last of the stretch
	Steps    int64   `json:"steps"` // in the stretch
	UnixNano int64   `json:"unix_nano"`
	Seconds  float64 `json:"seconds"` // of the stretch, in which steps were computed

	PromptTokens   int64   `json:"prompt_tokens"` // computed in the stretch
	NewTokens      int64   `json:"new_tokens"`
	PrefillSeconds float64 `json:"prefill_seconds"` // of Seconds, in steps with tokens of prompts
	DecodeSeconds  float64 `json:"decode_seconds"`  // in the others
	TotalPrompt    int64   `json:"total_prompt_tokens"`
	TotalNew       int64   `json:"total_new_tokens"`

	Sequences int64 `json:"sequences"` // that are open
	Waiting   int64 `json:"waiting"`   // of them, those whose prompt is not computed yet
	Finished  int64 `json:"finished"`  // texts, so far
	Positions int64 `json:"positions"` // tokens whose keys and values the cache has

	// PagesUsed of Pages hold keys and values, each of PageTokens positions; CacheBytes is what
	// the used ones take.
	PagesUsed  int64 `json:"pages_used"`
	Pages      int64 `json:"pages"`
	PageTokens int64 `json:"page_tokens"`
	CacheBytes int64 `json:"cache_bytes"`

	Forecast        float64  `json:"forecast_seconds"` // of one decode step at half of the context, by the plan
	Bound           Resource `json:"bound"`            // what limits it, by the forecast
	ShareOfRoofline float64  `json:"share_of_roofline,omitempty"`
	PredictedBytes  int64    `json:"predicted_bytes"`
	MeasuredBytes   int64    `json:"measured_bytes"` // of the devices, by their own count; 0 when not known
	DriverBytes     int64    `json:"driver_bytes,omitempty"`
	Resident        int64    `json:"resident_bytes"`
	Tiers           Tiers    `json:"tiers"`
	Traced          bool     `json:"traced,omitempty"` // it took longer, since its instructions were timed
}

// Time is when the stretch ended.
func (g *Generation) Time() time.Time { return time.Unix(0, g.UnixNano) }

// PrefillRate is tokens of prompts a second; 0 where none were computed.
func (g *Generation) PrefillRate() float64 { return perSecond(g.PromptTokens, g.PrefillSeconds) }

// DecodeRate is new tokens a second, of all sequences together; 0 where steps with prompts made
// them all.
func (g *Generation) DecodeRate() float64 {
	if g.PromptTokens > 0 {
		return 0 // some of the new tokens came with prompts
	}
	return perSecond(g.NewTokens, g.DecodeSeconds)
}

func perSecond(n int64, seconds float64) float64 {
	if n <= 0 || seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

const generationWords = 32

// append writes the stretch behind b. New words are added at the end.
func (g *Generation) append(b []byte) []byte {
	var flags uint64
	if g.Traced {
		flags = 1
	}
	float := math.Float64bits
	for _, w := range [generationWords]uint64{
		uint64(g.Step), uint64(g.Steps), uint64(g.UnixNano), float(g.Seconds), uint64(g.PromptTokens), uint64(g.NewTokens), float(g.PrefillSeconds), float(g.DecodeSeconds),
		uint64(g.TotalPrompt), uint64(g.TotalNew), uint64(g.Sequences), uint64(g.Waiting), uint64(g.Finished), uint64(g.Positions),
		uint64(g.PagesUsed), uint64(g.Pages), uint64(g.PageTokens), uint64(g.CacheBytes), float(g.Forecast), uint64(g.Bound), float(g.ShareOfRoofline),
		uint64(g.PredictedBytes), uint64(g.MeasuredBytes), uint64(g.DriverBytes), uint64(g.Resident), uint64(g.Tiers.Device), uint64(g.Tiers.Pinned), uint64(g.Tiers.Host), uint64(g.Tiers.Disk), flags,
		0, 0, // for what comes
	} {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// readGeneration is the stretch of a payload. Words that it lacks are zero.
func readGeneration(b []byte) (g Generation) {
	w := wordReader(b)
	for _, to := range []*int64{&g.Step, &g.Steps, &g.UnixNano} {
		w.integer(to)
	}
	w.float(&g.Seconds)
	w.integer(&g.PromptTokens)
	w.integer(&g.NewTokens)
	w.float(&g.PrefillSeconds)
	w.float(&g.DecodeSeconds)
	for _, to := range []*int64{&g.TotalPrompt, &g.TotalNew, &g.Sequences, &g.Waiting, &g.Finished, &g.Positions, &g.PagesUsed, &g.Pages, &g.PageTokens, &g.CacheBytes} {
		w.integer(to)
	}
	w.float(&g.Forecast)
	g.Bound = Resource(w.next())
	w.float(&g.ShareOfRoofline)
	for _, to := range []*int64{&g.PredictedBytes, &g.MeasuredBytes, &g.DriverBytes, &g.Resident, &g.Tiers.Device, &g.Tiers.Pinned, &g.Tiers.Host, &g.Tiers.Disk} {
		w.integer(to)
	}
	g.Traced = w.next()&1 != 0
	return g
}

// wordReader gives the words of a payload, and zeros behind its end.
type wordReader []byte

func (r *wordReader) next() uint64 {
	if len(*r) < 8 {
		return 0
	}
	w := binary.LittleEndian.Uint64(*r)
	*r = (*r)[8:]
	return w
}

func (r *wordReader) integer(to *int64) { *to = int64(r.next()) }
func (r *wordReader) float(to *float64) { *to = math.Float64frombits(r.next()) }

// GenerationColumns are those of a table of stretches: generate --log FILE.csv.
var GenerationColumns = []string{"run", "step", "time", "seconds", "prompt_tokens", "new_tokens", "prefill_tokens_per_second", "decode_tokens_per_second", "sequences", "positions", "cache_mb", "cpu_mem_mb", "gpu_mem_mb", "gpu_predicted_mb", "traced"}

// Row is the stretch as a line of the table; what there is none of is empty. Sizes are in millions
// of bytes.
func (g *Generation) Row(run string) []string {
	number := func(f float64) string {
		if f == 0 {
			return ""
		}
		return strconv.FormatFloat(f, 'g', 6, 64)
	}
	size := func(n int64) string { return number(float64(n) / 1e6) }
	integer := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []string{run, integer(g.Step), g.Time().UTC().Format(time.RFC3339Nano), number(g.Seconds), integer(g.PromptTokens), integer(g.NewTokens), number(g.PrefillRate()), number(g.DecodeRate()),
		integer(g.Sequences), integer(g.Positions), size(g.CacheBytes), size(g.Resident), size(g.MeasuredBytes), size(g.PredictedBytes), strconv.FormatBool(g.Traced)}
}

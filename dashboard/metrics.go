package dashboard

import (
	"fmt"
	"net/http"
	"strings"

	"spillway/eventlog"
	"spillway/monitor"
)

// gauge is a number that Prometheus reads, in base units: seconds, bytes, ratios.
type gauge struct{ name, help string }

// runGauge is one of a run.
type runGauge struct {
	gauge
	of func(RunLine) (float64, bool)
}

// stepGauge is one of a run that trains.
func stepGauge(name, help string, of func(*eventlog.Iteration) (float64, bool)) runGauge {
	return runGauge{gauge{name, help}, func(r RunLine) (float64, bool) {
		if r.Last == nil {
			return 0, false
		}
		return of(r.Last)
	}}
}

// textGauge is one of a run that generates texts.
func textGauge(name, help string, of func(*eventlog.Generation) (float64, bool)) runGauge {
	return runGauge{gauge{name, help}, func(r RunLine) (float64, bool) {
		if r.Generated == nil {
			return 0, false
		}
		return of(r.Generated)
	}}
}

// positive is a number of which 0 says that there is none.
func positive(v float64) (float64, bool) { return v, v > 0 }

// runGauges are those of each run.
var runGauges = []runGauge{
	stepGauge("spillway_run_step", "Optimizer steps done.", func(it *eventlog.Iteration) (float64, bool) { return float64(it.Step), true }),
	stepGauge("spillway_run_max_steps", "Optimizer steps of the whole run.", func(it *eventlog.Iteration) (float64, bool) { return positive(float64(it.MaxSteps)) }),
	stepGauge("spillway_run_loss", "Training loss of the newest step.", func(it *eventlog.Iteration) (float64, bool) { return it.Loss, true }),
	stepGauge("spillway_run_eval_loss", "Newest eval loss.", func(it *eventlog.Iteration) (float64, bool) { return it.LatestEval, it.LatestEval != 0 }),
	stepGauge("spillway_run_learning_rate", "Learning rate of the newest step.", func(it *eventlog.Iteration) (float64, bool) { return it.LR, true }),
	stepGauge("spillway_run_grad_norm", "Gradient norm before clipping.", func(it *eventlog.Iteration) (float64, bool) { return it.GradNorm, it.GradNorm != 0 }),
	stepGauge("spillway_run_step_seconds", "Time of the newest step.", func(it *eventlog.Iteration) (float64, bool) { return it.Seconds, true }),
	stepGauge("spillway_run_forecast_step_seconds", "Time of a step by the plan's forecast.", func(it *eventlog.Iteration) (float64, bool) { return positive(it.Forecast) }),
	stepGauge("spillway_run_tokens_per_second", "Tokens trained on per second.", func(it *eventlog.Iteration) (float64, bool) { return it.TokensPerSecond, true }),
	stepGauge("spillway_run_roofline_ratio", "Speed as a share of what the limiting resource allows.", func(it *eventlog.Iteration) (float64, bool) { return it.ShareOfRoofline, true }),
	stepGauge("spillway_run_remaining_seconds", "Time to the last step.", func(it *eventlog.Iteration) (float64, bool) { return positive(it.ETA) }),
	stepGauge("spillway_run_optimizer_state_bytes", "Optimizer state, without master weights.", func(it *eventlog.Iteration) (float64, bool) { return positive(float64(it.StateBytes)) }),
	textGauge("spillway_run_decode_tokens_per_second", "New tokens per second, of all sequences.", func(g *eventlog.Generation) (float64, bool) { return positive(g.DecodeRate()) }),
	textGauge("spillway_run_prefill_tokens_per_second", "Tokens of prompts per second.", func(g *eventlog.Generation) (float64, bool) { return positive(g.PrefillRate()) }),
	textGauge("spillway_run_sequences", "Sequences that are open.", func(g *eventlog.Generation) (float64, bool) { return float64(g.Sequences), true }),
	textGauge("spillway_run_new_tokens", "Tokens generated since the process began.", func(g *eventlog.Generation) (float64, bool) { return float64(g.TotalNew), true }),
	textGauge("spillway_run_cache_bytes", "Keys and values that the cache has.", func(g *eventlog.Generation) (float64, bool) { return float64(g.CacheBytes), true }),
	{gauge{"spillway_run_device_memory_bytes", "Device memory measured."}, func(r RunLine) (float64, bool) {
		if r.Last != nil {
			return positive(float64(r.Last.MeasuredBytes))
		}
		return positive(float64(r.Generated.MeasuredBytes))
	}},
	{gauge{"spillway_run_device_memory_predicted_bytes", "Device memory by the plan."}, func(r RunLine) (float64, bool) {
		if r.Last != nil {
			return float64(r.Last.PredictedBytes), true
		}
		return float64(r.Generated.PredictedBytes), true
	}},
	{gauge{"spillway_run_alerts", "Alerts among the newest records of the run's log."}, func(r RunLine) (float64, bool) { return float64(len(r.Alerts)), true }},
	{gauge{"spillway_run_running", "1 while the run's process works."}, func(r RunLine) (float64, bool) {
		if r.State == monitor.Running {
			return 1, true
		}
		return 0, true
	}},
}

// gpuGauges are those of each GPU; what the driver does not report is left out.
var gpuGauges = []struct {
	gauge
	of func(monitor.GPU) (v float64, scale float64)
}{
	{gauge{"spillway_gpu_busy_ratio", "Share of the last second in which a kernel ran."}, func(g monitor.GPU) (float64, float64) { return float64(g.Busy), 0.01 }},
	{gauge{"spillway_gpu_memory_used_bytes", "Memory in use by all programs."}, func(g monitor.GPU) (float64, float64) { return float64(g.MemoryUsed), 1 }},
	{gauge{"spillway_gpu_memory_bytes", "Memory that it has."}, func(g monitor.GPU) (float64, float64) { return float64(g.Memory), 1 }},
	{gauge{"spillway_gpu_link_in_bytes_per_second", "From the host, just now."}, func(g monitor.GPU) (float64, float64) { return float64(g.Received), 1 }},
	{gauge{"spillway_gpu_link_out_bytes_per_second", "To the host, just now."}, func(g monitor.GPU) (float64, float64) { return float64(g.Sent), 1 }},
	{gauge{"spillway_gpu_temperature_celsius", "Temperature of the chip."}, func(g monitor.GPU) (float64, float64) { return float64(g.Temperature), 1 }},
	{gauge{"spillway_gpu_power_watts", "Power that it takes."}, func(g monitor.GPU) (float64, float64) { return float64(g.Power), 1e-3 }},
	{gauge{"spillway_gpu_clock_hertz", "Clock of its multiprocessors."}, func(g monitor.GPU) (float64, float64) { return float64(g.Clock), 1e6 }},
}

// hostGauges are those of the computer.
var hostGauges = []struct {
	gauge
	of func(monitor.Host) float64
}{
	{gauge{"spillway_host_cpu_busy_ratio", "Share of all cores that worked in the last second."}, func(h monitor.Host) float64 { return h.Busy }},
	{gauge{"spillway_host_memory_available_bytes", "Memory that programs could get."}, func(h monitor.Host) float64 { return float64(h.Available) }},
	{gauge{"spillway_host_memory_pressure_ratio", "Share of the last ten seconds in which something waited for memory."}, func(h monitor.Host) float64 { return h.Pressure }},
}

// labels of Prometheus are escaped so.
var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// metrics writes the text format of Prometheus.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	head := func(g gauge) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", g.name, g.help, g.name) }
	runs, computer := s.roll.all(), s.computer()
	for _, g := range runGauges {
		head(g.gauge)
		for _, r := range runs {
			bound := ""
			switch {
			case r.Last != nil:
				bound = r.Last.Bound.String()
			case r.Generated != nil:
				bound = r.Generated.Bound.String()
			default:
				continue
			}
			if v, has := g.of(r); has {
				fmt.Fprintf(&b, "%s{run=\"%s\",model=\"%s\",bound=\"%s\"} %v\n", g.name, escapeLabel.Replace(r.Name), escapeLabel.Replace(r.Start.Model), escapeLabel.Replace(bound), v)
			}
		}
	}
	for _, g := range gpuGauges {
		head(g.gauge)
		for _, gpu := range computer.GPUs {
			if v, scale := g.of(gpu); v >= 0 {
				fmt.Fprintf(&b, "%s{gpu=\"%d\",name=\"%s\"} %v\n", g.name, gpu.Index, escapeLabel.Replace(gpu.Name), v*scale)
			}
		}
	}
	for _, g := range hostGauges {
		head(g.gauge)
		fmt.Fprintf(&b, "%s{host=\"%s\"} %v\n", g.name, escapeLabel.Replace(computer.Host.Name), g.of(computer.Host))
	}
	clients, made, missed, stalled := s.feed.counts()
	for _, own := range []struct {
		gauge
		v int64
	}{
		{gauge{"spillway_dashboard_clients", "Pages that listen to this dashboard."}, int64(clients)},
		{gauge{"spillway_dashboard_messages_made", "Messages made for pages: one for all that know the same."}, made},
		{gauge{"spillway_dashboard_messages_missed", "Messages that pages did not take before the next."}, missed},
		{gauge{"spillway_dashboard_clients_stalled", "Pages that were disconnected since they did not read."}, stalled},
	} {
		head(own.gauge)
		fmt.Fprintf(&b, "%s{host=\"%s\"} %d\n", own.name, escapeLabel.Replace(computer.Host.Name), own.v)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	fmt.Fprint(w, b.String())
}

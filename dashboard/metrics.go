package dashboard

import (
	"fmt"
	"net/http"
	"strings"

	"spillway/monitor"
)

// gauge is a number that Prometheus reads.
type gauge struct {
	name, help string
	of         func(RunLine) (float64, bool)
}

// gauges of each run, in base units as Prometheus wants them.
var gauges = []gauge{
	{"spillway_run_step", "Optimizer steps done.", func(r RunLine) (float64, bool) { return float64(r.Last.Step), true }},
	{"spillway_run_max_steps", "Optimizer steps of the whole run.", func(r RunLine) (float64, bool) { return float64(r.Last.MaxSteps), r.Last.MaxSteps > 0 }},
	{"spillway_run_loss", "Training loss of the newest step.", func(r RunLine) (float64, bool) { return r.Last.Loss, true }},
	{"spillway_run_eval_loss", "Newest eval loss.", func(r RunLine) (float64, bool) { return r.Last.LatestEval, r.Last.LatestEval != 0 }},
	{"spillway_run_learning_rate", "Learning rate of the newest step.", func(r RunLine) (float64, bool) { return r.Last.LR, true }},
	{"spillway_run_grad_norm", "Gradient norm before clipping.", func(r RunLine) (float64, bool) { return r.Last.GradNorm, r.Last.GradNorm != 0 }},
	{"spillway_run_step_seconds", "Time of the newest step.", func(r RunLine) (float64, bool) { return r.Last.Seconds, true }},
	{"spillway_run_forecast_step_seconds", "Time of a step by the plan's forecast.", func(r RunLine) (float64, bool) { return r.Last.Forecast, r.Last.Forecast > 0 }},
	{"spillway_run_tokens_per_second", "Tokens trained on per second.", func(r RunLine) (float64, bool) { return r.Last.TokensPerSecond, true }},
	{"spillway_run_roofline_ratio", "Speed as a share of what the limiting resource allows.", func(r RunLine) (float64, bool) { return r.Last.ShareOfRoofline, true }},
	{"spillway_run_device_memory_bytes", "Device memory measured.", func(r RunLine) (float64, bool) { return float64(r.Last.MeasuredBytes), r.Last.MeasuredBytes > 0 }},
	{"spillway_run_device_memory_predicted_bytes", "Device memory by the plan.", func(r RunLine) (float64, bool) { return float64(r.Last.PredictedBytes), true }},
	{"spillway_run_remaining_seconds", "Time to the last step.", func(r RunLine) (float64, bool) { return r.Last.ETA, r.Last.ETA > 0 }},
	{"spillway_run_running", "1 while the run's process works.", func(r RunLine) (float64, bool) {
		if r.State == monitor.Running {
			return 1, true
		}
		return 0, true
	}},
}

// labels of Prometheus are escaped so.
var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// metrics writes the text format of Prometheus.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	runs := s.roll.all()
	for _, g := range gauges {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", g.name, g.help, g.name)
		for _, r := range runs {
			if r.Last == nil {
				continue
			}
			if v, has := g.of(r); has {
				fmt.Fprintf(&b, "%s{run=\"%s\",model=\"%s\",bound=\"%s\"} %v\n", g.name, escapeLabel.Replace(r.Name), escapeLabel.Replace(r.Start.Model), escapeLabel.Replace(r.Last.Bound.String()), v)
			}
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	fmt.Fprint(w, b.String())
}

package dashboard

import (
	"encoding/json"
	"fmt"
	"io"
)

// panel is a chart of a Grafana dashboard: metrics of one unit.
type panel struct {
	title string
	unit  string // as Grafana calls it: s, bytes, percentunit
	of    []series
}

// series is a metric with the label that tells its lines apart.
type series struct{ metric, legend string }

// ofRuns are metrics of runs, with their names behind them where there are several.
func ofRuns(metrics ...string) (list []series) {
	for _, m := range metrics {
		legend := "{{run}}"
		if len(metrics) > 1 {
			legend += " " + m[len("spillway_run_"):]
		}
		list = append(list, series{m, legend})
	}
	return list
}

func ofGPUs(metrics ...string) (list []series) {
	for _, m := range metrics {
		list = append(list, series{m, "GPU {{gpu}} " + m[len("spillway_gpu_"):]})
	}
	return list
}

func ofHost(metric string) []series { return []series{{metric, "{{host}}"}} }

// panels of the dashboard, two in a row. Every gauge is in one.
var panels = []panel{
	{"Loss", "none", ofRuns("spillway_run_loss", "spillway_run_eval_loss")},
	{"Tokens per second", "none", ofRuns("spillway_run_tokens_per_second", "spillway_run_decode_tokens_per_second", "spillway_run_prefill_tokens_per_second")},
	{"Share of roofline", "percentunit", ofRuns("spillway_run_roofline_ratio")},
	{"Time per step against the forecast", "s", ofRuns("spillway_run_step_seconds", "spillway_run_forecast_step_seconds")},
	{"Device memory, measured and predicted", "bytes", ofRuns("spillway_run_device_memory_bytes", "spillway_run_device_memory_predicted_bytes")},
	{"Keys and values, optimizer state", "bytes", ofRuns("spillway_run_cache_bytes", "spillway_run_optimizer_state_bytes")},
	{"Learning rate", "none", ofRuns("spillway_run_learning_rate")},
	{"Gradient norm", "none", ofRuns("spillway_run_grad_norm")},
	{"Steps", "none", ofRuns("spillway_run_step", "spillway_run_max_steps")},
	{"Time left", "s", ofRuns("spillway_run_remaining_seconds")},
	{"Texts", "none", ofRuns("spillway_run_sequences", "spillway_run_new_tokens")},
	{"Running, alerts", "none", ofRuns("spillway_run_running", "spillway_run_alerts")},
	{"GPU busy", "percentunit", ofGPUs("spillway_gpu_busy_ratio")},
	{"GPU memory", "bytes", ofGPUs("spillway_gpu_memory_used_bytes", "spillway_gpu_memory_bytes")},
	{"Link", "Bps", ofGPUs("spillway_gpu_link_in_bytes_per_second", "spillway_gpu_link_out_bytes_per_second")},
	{"GPU power", "watt", ofGPUs("spillway_gpu_power_watts")},
	{"GPU clock", "hertz", ofGPUs("spillway_gpu_clock_hertz")},
	{"GPU temperature", "celsius", ofGPUs("spillway_gpu_temperature_celsius")},
	{"CPU busy", "percentunit", ofHost("spillway_host_cpu_busy_ratio")},
	{"Host memory available", "bytes", ofHost("spillway_host_memory_available_bytes")},
	{"Host memory pressure", "percentunit", ofHost("spillway_host_memory_pressure_ratio")},
	{"Pages that listen", "none", append(ofHost("spillway_dashboard_clients"), series{"spillway_dashboard_clients_stalled", "stalled"}, series{"spillway_dashboard_messages_made", "messages made"}, series{"spillway_dashboard_messages_missed", "messages missed"})},
}

// WriteGrafana writes a dashboard that Grafana imports, over what /metrics has. The source of data
// and the runs are chosen in it.
func WriteGrafana(w io.Writer) error {
	type object = map[string]any
	const width, height = 12, 8
	source := object{"type": "prometheus", "uid": "${source}"}
	var list []object
	for i, p := range panels {
		var targets []object
		for t, s := range p.of {
			expr := s.metric
			if s.metric[:len("spillway_run_")] == "spillway_run_" {
				expr += `{run=~"$run"}`
			}
			targets = append(targets, object{"refId": string(rune('A' + t)), "expr": expr, "legendFormat": s.legend, "datasource": source})
		}
		list = append(list, object{
			"id": i + 1, "type": "timeseries", "title": p.title, "datasource": source, "targets": targets,
			"gridPos":     object{"x": i % 2 * width, "y": i / 2 * height, "w": width, "h": height},
			"fieldConfig": object{"defaults": object{"unit": p.unit}, "overrides": []object{}},
		})
	}
	text, err := json.MarshalIndent(object{
		"title": "spillway", "uid": "spillway-runs", "schemaVersion": 39, "version": 1, "editable": true, "refresh": "5s", "tags": []string{"spillway"},
		"time": object{"from": "now-1h", "to": "now"}, "panels": list,
		"templating": object{"list": []object{
			{"name": "source", "label": "source", "type": "datasource", "query": "prometheus"},
			{"name": "run", "label": "run", "type": "query", "datasource": source, "query": object{"query": "label_values(spillway_run_running, run)", "refId": "run"}, "refresh": 2, "multi": true, "includeAll": true, "allValue": ".*"},
		}},
	}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

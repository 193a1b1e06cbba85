package view

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"spillway/eventlog"
)

// MLflow is a server of experiments that speaks MLflow's REST.
type MLflow struct {
	Address    string // of the server: http://127.0.0.1:5000, with a user and a password where it wants them
	Experiment string // "" is spillway
	Token      string // "" for none
	client     *http.Client
}

// Exported is what a server was given of a run.
type Exported struct {
	Experiment string `json:"experiment_id"`
	Run        string `json:"run_id"`
	Metrics    int    `json:"metrics"` // values that it was given now
	URL        string `json:"url"`
}

// Limits of a request, as the server has them.
const (
	mlflowMetrics, mlflowParams = 1000, 100
	mlflowValue                 = 500 // bytes of a param
)

// runTag marks the run that has been exported, so that exporting it again adds what is new.
const runTag = "spillway.run"

type (
	mlflowTag struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	mlflowMetric struct {
		Key       string  `json:"key"`
		Value     float64 `json:"value"`
		Timestamp int64   `json:"timestamp"` // milliseconds
		Step      int64   `json:"step"`
	}
	mlflowRun struct {
		Info struct {
			ID string `json:"run_id"`
		} `json:"info"`
		Data struct {
			Metrics []mlflowMetric `json:"metrics"` // the newest of each
		} `json:"data"`
	}
)

// Export writes a run to the server: its settings as params, every step's figures as metrics, and
// how it ended. A run that is there already is gone on with, so that it may be exported while
// it goes on and again later.
func (m MLflow) Export(ctx context.Context, r *Run) (e Exported, err error) {
	if m.client == nil {
		m.client = &http.Client{Timeout: 30 * time.Second}
	}
	if m.Experiment == "" {
		m.Experiment = "spillway"
	}
	if _, err := url.ParseRequestURI(m.Address); err != nil || !strings.HasPrefix(m.Address, "http") {
		return e, fmt.Errorf("%q is no address of an MLflow server; write it like http://127.0.0.1:5000", m.Address)
	}
	m.Address = strings.TrimSuffix(m.Address, "/")
	if e.Experiment, err = m.experiment(ctx); err != nil {
		return e, err
	}
	there, err := m.find(ctx, e.Experiment, r.ID())
	if err != nil {
		return e, err
	}
	if there.Info.ID == "" {
		if there, err = m.create(ctx, e.Experiment, r); err != nil {
			return e, err
		}
	}
	e.Run = there.Info.ID
	shown := m.Address
	if u, err := url.Parse(m.Address); err == nil {
		u.User = nil // a password is nobody else's
		shown = u.String()
	}
	e.URL = fmt.Sprintf("%s/#/experiments/%s/runs/%s", shown, e.Experiment, e.Run)
	metrics := newMetrics(r, there.Data.Metrics)
	for batch := range slices.Chunk(metrics, mlflowMetrics) {
		if err := m.post(ctx, "runs/log-batch", map[string]any{"run_id": e.Run, "metrics": batch}, nil); err != nil {
			return e, err
		}
		e.Metrics += len(batch)
	}
	return e, m.finish(ctx, e.Run, r)
}

// experiment finds the experiment by its name, or makes it.
func (m MLflow) experiment(ctx context.Context) (id string, err error) {
	var made struct {
		ID string `json:"experiment_id"`
	}
	err = m.post(ctx, "experiments/create", map[string]string{"name": m.Experiment}, &made)
	if err == nil || !strings.Contains(err.Error(), "RESOURCE_ALREADY_EXISTS") {
		return made.ID, err
	}
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	err = m.call(ctx, http.MethodGet, "experiments/get-by-name?experiment_name="+url.QueryEscape(m.Experiment), nil, &found)
	return found.Experiment.ID, err
}

// find finds the run that was exported before.
func (m MLflow) find(ctx context.Context, experiment, id string) (run mlflowRun, err error) {
	var found struct {
		Runs []mlflowRun `json:"runs"`
	}
	filter := fmt.Sprintf("tags.`%s` = '%s'", runTag, strings.ReplaceAll(id, "'", "_"))
	err = m.post(ctx, "runs/search", map[string]any{"experiment_ids": []string{experiment}, "filter": filter, "max_results": 1}, &found)
	if len(found.Runs) > 0 {
		run = found.Runs[0]
	}
	return run, err
}

// create makes a run with its settings.
func (m MLflow) create(ctx context.Context, experiment string, r *Run) (run mlflowRun, err error) {
	tags := []mlflowTag{{runTag, strings.ReplaceAll(r.ID(), "'", "_")}, {"mlflow.source.name", "spillway"}}
	start := time.Now()
	if len(r.Starts) > 0 {
		s := r.Starts[0]
		start = s.Time
		tags = append(tags, mlflowTag{"model", s.Model}, mlflowTag{"task", s.Task}, mlflowTag{"host", s.Host}, mlflowTag{"mlflow.source.git.commit", s.Program})
	}
	var made struct {
		Run mlflowRun `json:"run"`
	}
	if err := m.post(ctx, "runs/create", map[string]any{"experiment_id": experiment, "run_name": r.Name, "start_time": start.UnixMilli(), "tags": tags}, &made); err != nil {
		return made.Run, err
	}
	var params []mlflowTag
	for _, s := range r.Settings {
		params = append(params, mlflowTag{s.Name, shortened(s.Value)})
	}
	if p, err := r.Plan(); err == nil && p != nil {
		params = append(params, mlflowTag{"strategy", shortened(p.Strategy)})
	}
	for batch := range slices.Chunk(params, mlflowParams) {
		if err := m.post(ctx, "runs/log-batch", map[string]any{"run_id": made.Run.Info.ID, "params": batch}, nil); err != nil {
			return made.Run, err
		}
	}
	return made.Run, nil
}

// shortened cuts the value of a param to what a server takes.
func shortened(text string) string {
	if len(text) > mlflowValue {
		return strings.ToValidUTF8(text[:mlflowValue-3], "") + "…"
	}
	return text
}

// newMetrics are the figures of steps after those that a server has.
func newMetrics(r *Run, there []mlflowMetric) (list []mlflowMetric) {
	last := map[string]int64{}
	for _, m := range there {
		last[m.Key] = m.Step
	}
	add := func(m Metric, step, nano int64, v float64, has bool) {
		if had, ok := last[m.Name]; has && (!ok || step > had) && !math.IsNaN(v) && !math.IsInf(v, 0) {
			list = append(list, mlflowMetric{m.Name, v, nano / 1e6, step})
		}
	}
	for i := range r.Iterations {
		it := &r.Iterations[i]
		for _, m := range Metrics {
			if m.of != nil {
				v, has := m.of(it)
				add(m, it.Step, it.UnixNano, v, has)
			}
		}
	}
	for i := range r.Generations {
		g := &r.Generations[i]
		for _, m := range Metrics {
			if m.made != nil {
				v, has := m.made(g)
				add(m, g.Step, g.UnixNano, v, has)
			}
		}
	}
	return list
}

// finish says how the run stands.
func (m MLflow) finish(ctx context.Context, id string, r *Run) error {
	update := map[string]any{"run_id": id, "status": "RUNNING"}
	if r.End != nil {
		update["status"] = map[string]string{eventlog.Done: "FINISHED", eventlog.Interrupted: "KILLED", eventlog.Failed: "FAILED"}[r.End.How]
		update["end_time"] = r.End.Time.UnixMilli()
	}
	return m.post(ctx, "runs/update", update, nil)
}

func (m MLflow) post(ctx context.Context, what string, v, to any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return m.call(ctx, http.MethodPost, what, text, to)
}

// maxAnswer bounds what is read of a server.
const maxAnswer = 16 << 20

// call asks the server, and reads its answer.
func (m MLflow) call(ctx context.Context, method, what string, body []byte, to any) error {
	q, err := http.NewRequestWithContext(ctx, method, m.Address+"/api/2.0/mlflow/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	if m.Token != "" {
		q.Header.Set("Authorization", "Bearer "+m.Token)
	}
	answer, err := m.client.Do(q)
	if err != nil {
		return fmt.Errorf("asking the MLflow server: %w", err)
	}
	defer answer.Body.Close() // nothing in it is needed any more
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading what the MLflow server answers: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		var failed struct {
			Code    string `json:"error_code"`
			Message string `json:"message"`
		}
		if json.Unmarshal(text, &failed) != nil || failed.Code == "" {
			failed.Code, failed.Message = answer.Status, string(text[:min(len(text), 200)])
		}
		return fmt.Errorf("the MLflow server refuses %s: %s: %s", strings.Split(what, "?")[0], failed.Code, failed.Message)
	}
	if to == nil {
		return nil
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("what the MLflow server answers to %s is not what MLflow answers: %w", strings.Split(what, "?")[0], err)
	}
	return nil
}

package view

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/eventlog"
)

// mlflow is a server that takes what MLflow documents, and refuses what MLflow refuses.
type mlflow struct {
	t           *testing.T
	experiments map[string]string
	status, id  string
	tags        map[string]string
	params      map[string]string
	metrics     map[string][]mlflowMetric
	created     int
}

func (s *mlflow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code, format string, args ...any) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]string{"error_code": code, "message": fmt.Sprintf(format, args...)})
	}
	if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "secret" {
		refuse(http.StatusUnauthorized, "UNAUTHENTICATED", "who are you?")
		return
	}
	what, _ := strings.CutPrefix(r.URL.Path, "/api/2.0/mlflow/")
	var q struct {
		Name       string         `json:"name"`
		Experiment string         `json:"experiment_id"`
		Run        string         `json:"run_id"`
		RunName    string         `json:"run_name"`
		Start      int64          `json:"start_time"`
		End        int64          `json:"end_time"`
		Status     string         `json:"status"`
		Filter     string         `json:"filter"`
		IDs        []string       `json:"experiment_ids"`
		Metrics    []mlflowMetric `json:"metrics"`
		Params     []mlflowTag    `json:"params"`
		Tags       []mlflowTag    `json:"tags"`
	}
	if r.Method == http.MethodPost {
		d := json.NewDecoder(r.Body)
		if err := d.Decode(&q); err != nil || r.Header.Get("Content-Type") != "application/json" {
			refuse(http.StatusBadRequest, "BAD_REQUEST", "%v", err)
			return
		}
	}
	out := map[string]any{}
	switch what {
	case "experiments/create":
		if s.experiments[q.Name] != "" {
			refuse(http.StatusBadRequest, "RESOURCE_ALREADY_EXISTS", "Experiment '%s' already exists.", q.Name)
			return
		}
		s.experiments[q.Name] = "7"
		out["experiment_id"] = "7"
	case "experiments/get-by-name":
		out["experiment"] = map[string]string{"experiment_id": s.experiments[r.URL.Query().Get("experiment_name")]}
	case "runs/search":
		if len(q.IDs) == 1 && q.IDs[0] == "7" && s.id != "" && q.Filter == "tags.`spillway.run` = '"+s.tags["spillway.run"]+"'" {
			var newest []mlflowMetric
			for _, list := range s.metrics {
				newest = append(newest, list[len(list)-1])
			}
			out["runs"] = []any{map[string]any{"info": map[string]string{"run_id": s.id}, "data": map[string]any{"metrics": newest}}}
		}
	case "runs/create":
		if q.Experiment != "7" || q.RunName == "" || q.Start < 1e12 {
			refuse(http.StatusBadRequest, "INVALID_PARAMETER_VALUE", "%+v", q)
			return
		}
		s.created++
		s.id = "r1"
		for _, tag := range q.Tags {
			s.tags[tag.Key] = tag.Value
		}
		out["run"] = map[string]any{"info": map[string]string{"run_id": s.id}}
	case "runs/log-batch":
		if q.Run != s.id || len(q.Metrics) > 1000 || len(q.Params) > 100 || len(q.Metrics)+len(q.Params)+len(q.Tags) > 1000 {
			refuse(http.StatusBadRequest, "INVALID_PARAMETER_VALUE", "%d metrics, %d params", len(q.Metrics), len(q.Params))
			return
		}
		for _, p := range q.Params {
			if had, ok := s.params[p.Key]; ok && had != p.Value || len(p.Value) > 500 {
				refuse(http.StatusBadRequest, "INVALID_PARAMETER_VALUE", "changing param %s", p.Key)
				return
			}
			s.params[p.Key] = p.Value
		}
		for _, m := range q.Metrics {
			s.metrics[m.Key] = append(s.metrics[m.Key], m)
		}
	case "runs/update":
		s.status = q.Status
	default:
		refuse(http.StatusNotFound, "ENDPOINT_NOT_FOUND", "%s", what)
		return
	}
	json.NewEncoder(w).Encode(out)
}

// A run is exported with its settings and every figure of every step, while it goes on and once more
// when it has ended, without anything twice.
func TestExportToMLflow(t *testing.T) {
	s := &mlflow{t: t, experiments: map[string]string{}, tags: map[string]string{}, params: map[string]string{}, metrics: map[string][]mlflowMetric{}}
	server := httptest.NewServer(s)
	defer server.Close()
	path := filepath.Join(t.TempDir(), eventlog.FileName)
	to := MLflow{Address: strings.Replace(server.URL, "http://", "http://me:secret@", 1) + "/"}
	given := 0
	for part := range int64(2) {
		w, err := eventlog.Open(path, eventlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if part == 0 {
			w.Start(eventlog.Start{Time: time.Now(), Run: "it's-1", Model: "tiny", Task: "train"})
			w.Settings([]eventlog.Setting{{Name: "learning-rate", Value: "1e-4"}, {Name: "data", Value: strings.Repeat("x", 600)}})
		}
		for n := range int64(300) {
			w.Iteration(&eventlog.Iteration{Step: 300*part + n + 1, UnixNano: time.Now().UnixNano(), Loss: 1 / float64(n+1), LR: 1e-4, Seconds: 0.1, TokensPerSecond: 5})
		}
		if part == 1 {
			w.End(eventlog.End{Time: time.Now(), How: eventlog.Done})
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		e, err := to.Export(t.Context(), r)
		r.Close()
		if err != nil || e.Run != "r1" || e.Experiment != "7" || strings.Contains(e.URL, "secret") {
			t.Fatalf("%+v, %v", e, err)
		}
		given += e.Metrics
		if want := map[int64]string{0: "RUNNING", 1: "FINISHED"}[part]; s.status != want {
			t.Errorf("the status is %s, want %s", s.status, want)
		}
	}
	all := 0
	for name, list := range s.metrics {
		all += len(list)
		for i, m := range list {
			if m.Step != int64(i+1) || m.Timestamp < 1e12 {
				t.Fatalf("%s: number %d is %+v", name, i, m)
			}
		}
	}
	if loss := s.metrics["loss"]; len(loss) != 600 || loss[3].Value != 0.25 || s.created != 1 || given != all || len(s.metrics) < 4 {
		t.Errorf("%d losses, %d runs, %d of %d figures", len(loss), s.created, all, given)
	}
	if s.params["learning-rate"] != "1e-4" || s.tags["model"] != "tiny" {
		t.Errorf("%v, %v", s.params, s.tags)
	}
	to.Address = server.URL
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := to.Export(t.Context(), r); err == nil || !strings.Contains(err.Error(), "UNAUTHENTICATED") {
		t.Errorf("%v", err)
	}
	for _, address := range []string{"127.0.0.1:5000", "ftp://x", "http://127.0.0.1:1"} {
		to.Address = address
		if _, err := to.Export(t.Context(), r); err == nil {
			t.Errorf("%s is exported to", address)
		}
	}
}

package dashboard

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every metric that the Grafana file names is one that /metrics has, and every one that /metrics has
// is in the file, with a unit that its name says.
func TestGrafanaFile(t *testing.T) {
	var file bytes.Buffer
	if err := WriteGrafana(&file); err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title         string
		SchemaVersion int
		Panels        []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct {
				Expr, LegendFormat string
				Datasource         struct{ Type, UID string }
			}
			FieldConfig struct{ Defaults struct{ Unit string } }
		}
		Templating struct {
			List []struct{ Name, Type string }
		}
	}
	if err := json.Unmarshal(file.Bytes(), &board); err != nil {
		t.Fatal(err)
	}
	s := New(Options{Cache: t.TempDir()})
	defer s.Close()
	answer := httptest.NewRecorder()
	s.metrics(answer, nil)
	has := map[string]bool{} // false until a panel shows it
	for line := range strings.Lines(answer.Body.String()) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			has[strings.Fields(name)[0]] = false
		}
	}
	metric := regexp.MustCompile(`spillway_[a-z_]+`)
	units := map[string]string{"_bytes": "bytes", "_seconds": "s", "_ratio": "percentunit", "_bytes_per_second": "Bps", "_celsius": "celsius", "_watts": "watt", "_hertz": "hertz"}
	taken := map[[2]int]string{}
	for i, p := range board.Panels {
		if p.ID != i+1 || p.Type != "timeseries" || p.GridPos.W <= 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d: %+v", i, p)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			for _, name := range metric.FindAllString(target.Expr, -1) {
				if _, ok := has[name]; !ok {
					t.Errorf("%s shows %s, which /metrics does not have", p.Title, name)
				}
				has[name] = true
				longest := ""
				for ending := range units {
					if strings.HasSuffix(name, ending) && len(ending) > len(longest) {
						longest = ending
					}
				}
				if longest != "" && !strings.HasSuffix(name, "tokens_per_second") && units[longest] != p.FieldConfig.Defaults.Unit {
					t.Errorf("%s shows %s in %s", p.Title, name, p.FieldConfig.Defaults.Unit)
				}
			}
			if target.Datasource.UID != "${source}" || target.LegendFormat == "" {
				t.Errorf("%+v", target)
			}
		}
	}
	for name, shown := range has {
		if !shown {
			t.Errorf("no panel shows %s", name)
		}
	}
	if len(board.Templating.List) != 2 || board.SchemaVersion == 0 {
		t.Errorf("%+v", board.Templating)
	}
}

// What /metrics answers is the text format of Prometheus: names, labels and a number in each line, each
// name once with its help and type before it.
func TestMetricsFormat(t *testing.T) {
	s := New(Options{Cache: t.TempDir()})
	defer s.Close()
	answer := httptest.NewRecorder()
	s.metrics(answer, nil)
	sample := regexp.MustCompile(`^([a-z_]+)\{([a-z]+="[^"]*",?)+\} (\S+)$`)
	typed := map[string]bool{}
	for line := range strings.Lines(answer.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		if f := strings.Fields(line); f[0] == "#" {
			if f[1] == "TYPE" && (typed[f[2]] || f[3] != "gauge") {
				t.Errorf("%s", line)
			}
			typed[f[2]] = typed[f[2]] || f[1] == "TYPE"
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil || !typed[m[1]] {
			t.Fatalf("%s", line)
		}
		if _, err := strconv.ParseFloat(m[3], 64); err != nil {
			t.Error(err)
		}
	}
	if !typed["spillway_host_cpu_busy_ratio"] {
		t.Errorf("%s", answer.Body)
	}
}

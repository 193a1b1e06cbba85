package monitor

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"spillway/eventlog"
)

// Alerts reach a command and an address, and what goes wrong is reported at the end.
func TestForwarding(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the command is for a Unix shell")
	}
	got := make(chan string, 10)
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got <- string(text)
	}))
	defer h.Close()
	file := filepath.Join(t.TempDir(), "alert")
	f := &Forwarder{Command: "cat > " + file, Webhook: h.URL}
	f.Alert(eventlog.Alert{Step: 7, Name: "loss-spike", Text: "loss 9; `rm -rf /` is only text"})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(written), <-got} {
		var a eventlog.Alert
		if err := json.Unmarshal([]byte(text), &a); err != nil || a.Step != 7 || !strings.Contains(a.Text, "is only text") {
			t.Errorf("%v: %s", err, text)
		}
	}
	bad := &Forwarder{Command: "exit 3"}
	bad.Alert(eventlog.Alert{})
	if err := bad.Close(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	if err := new(Forwarder).Close(); err != nil {
		t.Error(err)
	}
}

// An address that does not answer does not hold up whoever gives it alerts.
func TestForwardingDoesNotWait(t *testing.T) {
	goes := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-goes }))
	defer h.Close()
	f := &Forwarder{Webhook: h.URL}
	for range 100 {
		f.Alert(eventlog.Alert{}) // who waited for an answer would not come to the end
	}
	close(goes)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func init() { forwardWithin = 5 * time.Minute } // this computer may be busy

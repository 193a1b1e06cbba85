package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hubCommit is the commit that tinyHub has.
const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// tinyHub has programs find a hub with one model, org/tiny.
func tinyHub(t *testing.T) {
	t.Helper()
	files := map[string][]byte{}
	var siblings []map[string]any
	for _, name := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "reference", "llama", name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		files[name] = b
		siblings = append(siblings, map[string]any{"rfilename": name, "size": len(b), "lfs": map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(b)}})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/models/org/tiny/revision/main" {
			json.NewEncoder(w).Encode(map[string]any{"sha": hubCommit, "siblings": siblings})
			return
		}
		w.Write(files[strings.TrimPrefix(r.URL.Path, "/org/tiny/resolve/"+hubCommit+"/")])
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
}

// A model is pulled by its name, and then every command takes the name.
func TestPullThenUse(t *testing.T) {
	tinyHub(t)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	if r := command(t, "inspect", "org/tiny"); r.code == exitOK || !strings.Contains(r.err, "spillway pull org/tiny") {
		t.Errorf("before the pull: exit code %d, %s", r.code, r.err)
	}
	r := command(t, "pull", "org/tiny", "--json")
	var got pulled
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitOK || got.Files != 2 || got.Commit != hubCommit || got.Fetched != got.Bytes {
		t.Fatalf("exit code %d, %+v, %s (%v)", r.code, got, r.err, err)
	}
	if r := command(t, "pull", "org/tiny"); !strings.Contains(r.out, "nothing was missing") {
		t.Errorf("the second pull says %q %q", r.out, r.err)
	}
	works(t, "inspect", "org/tiny")
	works(t, "plan", "org/tiny", "--machine", "rtx4090", "--seq-len", "8")
	works(t, "quantize", "org/tiny", "small")
}

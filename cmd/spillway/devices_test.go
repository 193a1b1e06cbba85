package main

import (
	"os"
	"strings"
	"testing"

	"spillway/machine"
)

func TestDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("measuring copies and the disk takes seconds")
	}
	r := command(t, "devices", "--disk", t.TempDir(), "--json")
	v := r.object(t)
	for _, path := range []string{"devices", "host.cores", "host.memory", "host.copy", "disk.free", "disk.read", "description", "calibrated"} {
		at(t, v, path)
	}
	m, err := machine.Parse(at(t, v, "description").(string))
	if err != nil {
		t.Fatal(err)
	}
	if got := float64(m.Host.Memory); got != at(t, v, "host.memory") {
		t.Errorf("the description has %v of memory, the machine %v", got, at(t, v, "host.memory"))
	}
}

// Rates are kept: the second look at the machine says when they were measured.
func TestDevicesKeepsRates(t *testing.T) {
	if testing.Short() {
		t.Skip("measuring copies takes a second")
	}
	sh := shell{out: &strings.Builder{}, err: &strings.Builder{}, cache: t.TempDir()}
	first, err := sh.probe(machine.Options{CopyBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadDir(sh.cache)
	if err != nil || len(kept) != 1 {
		t.Fatalf("%d files are kept, %v", len(kept), err)
	}
	second, err := sh.probe(machine.Options{CopyBytes: 1 << 20})
	if err != nil || second.Host.Copy != first.Host.Copy {
		t.Errorf("the copy rate was %v and is %v, %v", first.Host.Copy, second.Host.Copy, err)
	}
}

func TestVersion(t *testing.T) {
	v := command(t, "version", "--json").object(t)
	if at(t, v, "version") != version || !strings.HasPrefix(at(t, v, "go").(string), "go1.") {
		t.Errorf("%v", v)
	}
	if r := command(t, "version"); !strings.Contains(r.out, "spillway "+version) {
		t.Errorf("%s", r.out)
	}
}

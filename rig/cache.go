package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"spillway/internal/vfs"
	"spillway/machine"
)

// cacheVersion is part of every entry. Raise it when something is measured differently or
// the file changes: entries of another version are measured again.
const cacheVersion = 4

// entry is a file of the cache: what was measured of one thing, whose key names everything
// that the figures depend on. Only figures that could be measured are not zero; Notes say
// why others are missing.
type entry struct {
	Version int             `json:"version"`
	Key     string          `json:"key"`
	At      time.Time       `json:"at"`
	Host    *machine.Host   `json:"host,omitempty"`
	Disk    *machine.Disk   `json:"disk,omitempty"`
	Device  *machine.Device `json:"device,omitempty"` // a GPU, or the CPU's tables next to the host
	// Calls are the times of single calls, by the calls as JSON.
	Calls map[string]machine.CallTime `json:"calls,omitempty"`
	Notes []string                    `json:"notes,omitempty"`
}

func (e *entry) note(format string, args ...any) {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
}

// check refuses an entry without rates, such as one of a damaged file.
func (e *entry) check() error {
	switch {
	case e.Host != nil && e.Host.Copy > 0 && e.Host.CopyOne > 0:
	case len(e.Calls) > 0:
	case e.Disk != nil && e.Disk.Read > 0 && e.Disk.Write > 0:
	case e.Device != nil && e.Device.Link.In > 0 && e.Device.Link.Out > 0 && e.Device.Bandwidth > 0 && e.Device.Compute.F32 > 0:
	default:
		return errors.New("it has no rates")
	}
	if e.Device != nil {
		return e.Device.Tables.Check()
	}
	return nil
}

var (
	// errNotCached says that the cache has nothing under a key.
	errNotCached = errors.New("not measured yet")
	// errTransient says that a measurement must be repeated next time.
	errTransient = errors.New("could not be measured now")
)

// cached loads what was measured under a key, or measures and stores it. What measure
// returns with errTransient is used but not stored. Trouble with the cache itself is a note
// of the entry: rates can be measured again or assumed. Faster says whether a quick look
// finds the hardware much faster than an entry has it: then that was measured in a busy
// minute, and is measured again. Nil looks at nothing.
func (o Options) cached(key string, faster func(entry) bool, measure func(*entry) error) (entry, error) {
	e, err := o.load(key)
	if err == nil && (faster == nil || !o.Measure || !faster(e)) {
		return e, nil
	}
	if err == nil {
		err = errNotCached
	}
	e = entry{Version: cacheVersion, Key: key, At: today()}
	if !errors.Is(err, errNotCached) {
		e.note("the cached rates were ignored: %v", err)
	}
	notes := len(e.Notes)
	if err := measure(&e); err != nil {
		return e, err
	}
	stored := e
	stored.Notes = e.Notes[notes:] // what was wrong with the old file is not wrong with this one
	if o.Cache == "" {
		return e, nil
	}
	if err := o.store(stored); err != nil {
		e.note("the measured rates could not be stored for next time: %v", err)
	}
	return e, nil
}

// today is when something was measured, to the second.
func today() time.Time { return time.Now().UTC().Truncate(time.Second) }

// age is how long ago the entry was measured.
func (e entry) age() time.Duration { return time.Since(e.At) }

// store writes an entry to the cache.
func (o Options) store(e entry) error {
	text, err := json.MarshalIndent(e, "", "  ")
	if err == nil {
		err = vfs.MkdirAll(vfs.OS, o.Cache)
	}
	if err == nil {
		err = vfs.ReplaceBytes(vfs.OS, o.path(e.Key), append(text, '\n'))
	}
	return err
}

// path of the entry of a key.
func (o Options) path(key string) string {
	h := fnv.New64a()
	h.Write([]byte(key))
	return filepath.Join(o.Cache, fmt.Sprintf("rates-%016x.json", h.Sum64()))
}

func (o Options) load(key string) (e entry, err error) {
	if o.Cache == "" || o.Calibrate {
		return e, errNotCached
	}
	text, err := os.ReadFile(o.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return e, errNotCached
	}
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err == nil {
		if e.Version != cacheVersion || e.Key != key {
			return e, errNotCached
		}
		err = e.check()
	}
	if err != nil {
		return e, fmt.Errorf("%s: %w", o.path(key), err)
	}
	return e, nil
}

// muchFaster is how much faster than what is cached a quick look must find something.
const muchFaster = 1.3

// forget removes what is cached under a key.
func (o Options) forget(key string) error {
	if o.Cache == "" {
		return nil
	}
	if err := os.Remove(o.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

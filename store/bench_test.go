package store

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"spillway/device"
	"spillway/internal/offheap"
	"spillway/internal/vfs"
)

const benchBytes = 256 << 20

// BenchmarkCopy measures copies of 256 MiB as shares of what plain direct reads or
// writes of 4 MiB from four goroutines reach, in turns with them.
func BenchmarkCopy(b *testing.B) {
	file := filepath.Join(b.TempDir(), "weights")
	must(b, os.WriteFile(file, randomBytes(benchBytes+8), 0o600))
	d := open(b, Options{Limit: 4 * benchBytes, Regions: []Region{
		{Kind: InPlace, Bytes: benchBytes, File: file, At: 8},
		{Kind: Journaled, Offset: benchBytes, Bytes: benchBytes},
	}})
	arena, host, q := alloc(b, d, 2*benchBytes), hostAlloc(b, d, benchBytes+64), newQueue(b, d, "in")
	copy(host.Host(), randomBytes(benchBytes))
	raw := newRaw(b)
	journaled, inPlace := part(arena, benchBytes, benchBytes), part(arena, 0, benchBytes)
	aligned, askew := part(host, 0, benchBytes), part(host, 64, benchBytes)
	for _, c := range []struct {
		name     string
		dst, src device.Buffer
		plain    func(p []byte, off int64) (int, error)
	}{
		{"write/journaled", journaled, aligned, raw.file.WriteAt},
		{"write/journaled, memory not aligned", journaled, askew, raw.file.WriteAt},
		{"read/journaled", aligned, journaled, raw.file.ReadAt},
		{"read/journaled, memory not aligned", askew, journaled, raw.file.ReadAt},
		{"read/in place", aligned, inPlace, raw.file.ReadAt},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(benchBytes)
			plain, ours := time.Hour, time.Hour // the best of each: others may use the disk
			for b.Loop() {
				plain = min(plain, raw.run(b, c.plain))
				start := time.Now()
				must(b, q.Copy(c.dst, c.src), q.Sync())
				ours = min(ours, time.Since(start))
			}
			b.ReportMetric(plain.Seconds()/ours.Seconds(), "of-plain")
			b.ReportMetric(benchBytes/ours.Seconds()/1e9, "GB/s")
		})
	}
	must(b, raw.close(), q.Close(), arena.Free(), host.Free(), d.Close())
}

// BenchmarkCommit is the time of a commit with nothing new, for an arena of 1 GiB.
func BenchmarkCommit(b *testing.B) {
	d := open(b, Options{Limit: 4 << 30})
	arena := alloc(b, d, 1<<30)
	i := int64(0)
	for b.Loop() {
		must(b, d.Begin(i), d.Commit(i))
		i++
	}
	must(b, d.Discard(), arena.Free(), d.Close())
}

func randomBytes(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(p)
	return p
}

// raw is a file read and written as plainly as can be.
type raw struct {
	file   vfs.InPlace
	memory *offheap.Region
}

const rawBytes, rawDepth = 4 << 20, 4

func newRaw(b *testing.B) *raw {
	f, err := vfs.OS.OpenInPlace(filepath.Join(b.TempDir(), "raw"), true)
	must(b, err)
	m, err := offheap.Alloc(rawDepth*rawBytes, false)
	must(b, err, f.Reserve(benchBytes))
	copy(m.Bytes(), randomBytes(rawDepth*rawBytes))
	r := &raw{f, m}
	r.run(b, f.WriteAt)
	return r
}

func (r *raw) close() error { r.memory.Free(); return r.file.Close() }

// run transfers the whole file and says how long it took.
func (r *raw) run(b *testing.B, do func(p []byte, off int64) (int, error)) time.Duration {
	var group sync.WaitGroup
	start := time.Now()
	for w := range int64(rawDepth) {
		group.Go(func() {
			for at := w * rawBytes; at < benchBytes; at += rawDepth * rawBytes {
				if _, err := do(r.memory.Bytes()[w*rawBytes:(w+1)*rawBytes], at); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
	return time.Since(start)
}

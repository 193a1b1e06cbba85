package safetensors

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/shape"
	"spillway/tensorfile"
)

// BenchmarkReadF32 reads a tensor from the page cache. Its figure "of-plain-read" is
// the share of the speed of reading the same bytes without converting them.
func BenchmarkReadF32(b *testing.B) {
	const elements = 4 << 20
	for _, ty := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16, dtype.F64} {
		b.Run(ty.String(), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "x")
			err := WriteFile(vfs.OS, path, []tensorfile.Output{{Name: "x", Type: ty, Shape: shape.Of(elements), Write: func(w io.Writer) error {
				_, err := w.Write(make([]byte, ty.Bytes(elements)))
				return err
			}}})
			if err != nil {
				b.Fatal(err)
			}
			f, err := Open(path)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			x, _ := f.Tensor("x")
			const chunk = 64 << 10
			dst, raw := make([]float32, elements), make([]byte, chunk)
			var plain time.Duration
			b.SetBytes(x.Bytes)
			for b.Loop() {
				b.StopTimer()
				start := time.Now()
				for off := int64(0); off < x.Bytes; off += chunk {
					x.ReadAt(raw, off)
				}
				plain += time.Since(start)
				b.StartTimer()
				if err := x.ReadF32(dst, 0); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(plain.Seconds()/b.Elapsed().Seconds(), "of-plain-read")
		})
	}
}

package view

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
)

// WriteTensorBoard writes all metrics of a run as an event file of TensorBoard, which others
// read too. Its name must have "tfevents" in it for TensorBoard to find it.
func (r *Run) WriteTensorBoard(w io.Writer) error {
	out := bufio.NewWriter(w)
	first := 0.0
	if len(r.Iterations) > 0 {
		first = float64(r.Iterations[0].UnixNano) / 1e9
	} else if len(r.Generations) > 0 {
		first = float64(r.Generations[0].UnixNano) / 1e9
	}
	var event []byte
	const wallTime, step, fileVersion, summary = 1, 2, 3, 5 // fields of an Event
	event = appendDouble(event, wallTime, first)
	event = appendBytes(event, fileVersion, []byte("brain.Event:2"))
	writeRecord(out, event)
	write := func(number, nano int64, group string, of func(Metric) (float64, bool)) {
		var values []byte
		for _, m := range Metrics {
			v, has := of(m)
			if !has {
				continue
			}
			const tag, simpleValue = 1, 2 // fields of a Summary.Value
			value := appendBytes(nil, tag, []byte(group+m.Name))
			value = binary.LittleEndian.AppendUint32(append(value, simpleValue<<3|5), math.Float32bits(float32(v)))
			values = appendBytes(values, 1, value)
		}
		event = appendDouble(event[:0], wallTime, float64(nano)/1e9)
		event = binary.AppendUvarint(append(event, step<<3), uint64(number))
		event = appendBytes(event, summary, values)
		writeRecord(out, event)
	}
	for i := range r.Iterations {
		it := &r.Iterations[i]
		write(it.Step, it.UnixNano, "train/", func(m Metric) (float64, bool) {
			if m.of == nil {
				return 0, false
			}
			return m.of(it)
		})
	}
	for i := range r.Generations {
		g := &r.Generations[i]
		write(g.Step, g.UnixNano, "generate/", func(m Metric) (float64, bool) {
			if m.made == nil {
				return 0, false
			}
			return m.made(g)
		})
	}
	return out.Flush() // also returns the first error of any write before it
}

func appendDouble(b []byte, field byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, field<<3|1), math.Float64bits(v))
}

func appendBytes(b []byte, field byte, v []byte) []byte {
	return append(binary.AppendUvarint(append(b, field<<3|2), uint64(len(v))), v...)
}

// writeRecord writes a TFRecord: length, data, and a masked CRC32C behind each. Errors come
// with the flush.
func writeRecord(w *bufio.Writer, data []byte) {
	masked := func(b []byte) []byte {
		crc := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return binary.LittleEndian.AppendUint32(nil, (crc>>15|crc<<17)+0xa282ead8)
	}
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	w.Write(length)
	w.Write(masked(length))
	w.Write(data)
	w.Write(masked(data))
}

// Package eventlog writes and reads the event log of a run: an append-only file with all
// that views of the run show, next to its checkpoints.
//
// The file begins with a header, then come records. A record is
//
//	length  uint32, of the payload, little-endian as everything here
//	kind    byte, and three bytes that are zero
//	payload
//	CRC32C  uint32, of all before it
//	length  uint32 again, so that the last record is found from the end of the file
//
// A process that is killed leaves whole records and at most a part of one more, which
// readers pass over and the next writer overwrites. A log can be read while it is written.
// Iterations and stretches of generating are numbers at fixed places, so that writing one
// allocates nothing; traces have a format of their own; everything else is JSON.
package eventlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// FileName of the event log in the folder of a run.
const FileName = "events.bin"

// Version of the format. Readers pass over kinds of records that they do not know, and over
// numbers that newer writers add to a record; only what they would misread has a new version.
const Version = 1

const (
	magic      = "spillway events\n"
	headerSize = len(magic) + 8 // version and CRC32C
	// frameSize is what a record has around its payload.
	frontSize, backSize = 8, 8
	frameSize           = frontSize + backSize
	// maxPayload bounds what a reader allocates for a record.
	maxPayload = 256 << 20
)

// Kind of a record.
type Kind byte

// The kinds.
const (
	KindStart      Kind = 1 + iota // a process begins or goes on with the run
	KindSettings                   // as the user gave them
	KindMachine                    // that it runs on
	KindPlan                       // that it carries out from here on
	KindIteration                  // an optimizer step
	KindTrace                      // when each instruction of an iteration ran, or will by the forecast
	KindAlert                      // something that a person should look at
	KindCheckpoint                 // that was saved
	KindSample                     // the memory of process and host
	KindEnd                        // the process is done with the run
	KindGeneration                 // a stretch of generating texts
	KindProfile                    // what the ops of a step took
)

var table = crc32.MakeTable(crc32.Castagnoli)

// appendRecord appends a record whose payload fill appends.
func appendRecord(b []byte, kind Kind, fill func([]byte) []byte) []byte {
	from := len(b)
	b = append(b, 0, 0, 0, 0, byte(kind), 0, 0, 0)
	b = fill(b)
	length := uint32(len(b) - from - frontSize)
	binary.LittleEndian.PutUint32(b[from:], length)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], table))
	return binary.LittleEndian.AppendUint32(b, length)
}

// header is what a file begins with.
func header() []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), Version)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, table))
}

// checkHeader says what is wrong with the beginning of a file.
func checkHeader(path string, b []byte) error {
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return &FormatError{Path: path}
	}
	body := b[:headerSize-4]
	if binary.LittleEndian.Uint32(b[len(body):]) != crc32.Checksum(body, table) {
		return &DamagedError{Path: path}
	}
	if v := binary.LittleEndian.Uint32(b[len(magic):]); v > Version {
		return &VersionError{Path: path, Version: int(v)}
	}
	return nil
}

// FormatError says that a file is no event log.
type FormatError struct{ Path string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s is not an event log of spillway: it does not begin like one", e.Path)
}

// VersionError says that a newer program wrote the log.
type VersionError struct {
	Path    string
	Version int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has version %d of event logs, this program reads up to %d: a newer spillway reads it", e.Path, e.Version, Version)
}

// DamagedError says that a record's checksum does not hold, so that everything from there
// on is unknown. What was read before it is sound.
type DamagedError struct {
	Path string
	At   int64 // bytes into the file
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: a checksum does not hold; what comes before it was read", e.Path, e.At)
}

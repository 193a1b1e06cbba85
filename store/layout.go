package store

import (
	"fmt"
	"math"
	"slices"

	"spillway/tensorfile"
)

// Kind of a region: where its bytes are and how long they live.
type Kind string

// The kinds.
const (
	Journaled Kind = "journaled" // two generations: survives a kill, from commit to commit
	Scratch   Kind = "scratch"   // one generation: its content ends with the process
	InPlace   Kind = "in place"  // a range of an existing file, read only
)

// Region is a part of an allocation. What no region covers reads as zeros and cannot
// be written. Pages are counted from the start of each region: a buffer that is a
// region of its own shares no page with others, and writing all of it reads nothing.
type Region struct {
	Kind   Kind  `json:"kind"`
	Offset int64 `json:"offset"` // in the allocation
	Bytes  int64 `json:"bytes"`
	// File and the offset in it, of a region in place.
	File string `json:"file,omitempty"`
	At   int64  `json:"at,omitempty"`
}

// RegionOf is a tensor as a region in place, at an offset of an allocation.
func RegionOf(t tensorfile.Tensor, offset int64) Region {
	return Region{Kind: InPlace, Offset: offset, Bytes: t.Bytes, File: t.Path, At: t.Offset}
}

// pageBytes carry one checksum, and change their generation together.
const pageBytes = 64 << 10

// chunkBytes is the most that is read or written at once.
const chunkBytes = 1 << 20

// layout is an allocation's regions, by offset, with their pages. Journaled pages come
// first, so that their numbers are also their places in the manifest.
type layout struct {
	bytes              int64
	regions            []placedRegion
	journaled, scratch int64 // pages
}

// placedRegion is a region with the number of its first page.
type placedRegion struct {
	Region
	page int64
}

func newLayout(bytes int64, regions []Region) (*layout, error) {
	l := &layout{bytes: bytes}
	sorted := slices.Clone(regions)
	slices.SortStableFunc(sorted, func(a, b Region) int { return int(min(max(a.Offset-b.Offset, -1), 1)) })
	end := int64(0)
	for _, r := range sorted {
		if err := r.check(end, bytes); err != nil {
			return nil, err
		}
		end = r.Offset + r.Bytes
		l.regions = append(l.regions, placedRegion{Region: r})
	}
	l.number(Journaled, &l.journaled, 0)
	l.number(Scratch, &l.scratch, l.journaled)
	return l, nil
}

// check compares a region with the end of the one before and of the allocation.
func (r Region) check(from, bytes int64) error {
	switch {
	case r.Kind != Journaled && r.Kind != Scratch && r.Kind != InPlace:
		return fmt.Errorf("a region of kind %q at %d; kinds are %s, %s and %s", r.Kind, r.Offset, Journaled, Scratch, InPlace)
	case r.Bytes < 0 || r.Offset < from || r.Bytes > bytes-r.Offset:
		return fmt.Errorf("a region of %d bytes at %d; the one before ends at %d, the allocation at %d", r.Bytes, r.Offset, from, bytes)
	case (r.Kind == InPlace) != (r.File != "") || r.Kind != InPlace && r.At != 0:
		return fmt.Errorf("a region of kind %s with file %q from %d on", r.Kind, r.File, r.At)
	case r.At < 0 || r.At > math.MaxInt64-r.Bytes:
		return fmt.Errorf("a region at %d of %s", r.At, r.File)
	}
	return nil
}

// number gives the regions of a kind their pages.
func (l *layout) number(k Kind, count *int64, from int64) {
	for i := range l.regions {
		if r := &l.regions[i]; r.Kind == k {
			r.page = from + *count
			*count += (r.Bytes + pageBytes - 1) / pageBytes
		}
	}
}

// ownBytes counts the bytes in a file of the disk: all but those in place.
func (l *layout) ownBytes() (bytes int64) {
	for _, r := range l.regions {
		if r.Kind != InPlace {
			bytes += r.Bytes
		}
	}
	return bytes
}

// FileBytes is how much of a disk an allocation with these regions takes; none means that
// all of it is journaled.
func FileBytes(bytes int64, regions []Region) (int64, error) {
	if len(regions) == 0 {
		regions = []Region{{Kind: Journaled, Bytes: bytes}}
	}
	l, err := newLayout(bytes, regions)
	if err != nil {
		return 0, err
	}
	return l.fileBytes(), nil
}

// fileBytes is the size of the file with all pages, journaled ones twice.
func (l *layout) fileBytes() int64 { return (2*l.journaled + l.scratch) * pageBytes }

// at is where a generation of a page is in the file.
func (l *layout) at(page int64, g generation) int64 {
	if g == second || page >= l.journaled { // scratch pages follow both generations of journaled ones
		page += l.journaled
	}
	return page * pageBytes
}

// chunkAt finds the region at an offset, nil for none, and how many of n bytes from there
// are read or written together: bytes of one region, of one chunk.
func (l *layout) chunkAt(offset, n int64) (*placedRegion, int64) {
	i, _ := slices.BinarySearchFunc(l.regions, offset, func(r placedRegion, offset int64) int {
		if r.Offset+r.Bytes <= offset {
			return -1
		}
		return 1
	})
	if i == len(l.regions) {
		return nil, min(n, chunkBytes)
	}
	r := &l.regions[i]
	if offset < r.Offset {
		return nil, min(n, chunkBytes, r.Offset-offset)
	}
	into := r.At + offset - r.Offset // where chunks are counted from
	return r, min(n, r.Offset+r.Bytes-offset, chunkBytes-into%chunkBytes)
}

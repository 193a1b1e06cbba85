package vfs

import (
	"fmt"

	"spillway/units"
)

// SpaceError says that something does not fit on the disk.
type SpaceError struct {
	Dir          string
	Needed, Free int64 // bytes
}

// Error gives both numbers and what to do.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("%s needs %v (%d bytes), %v (%d bytes) are free: free space there or choose another disk",
		e.Dir, units.Bytes(e.Needed), e.Needed, units.Bytes(e.Free), e.Free)
}

// WithSpace runs write, which needs so many bytes in dir, if they are free. A disk that fills
// up meanwhile gives a SpaceError too.
func WithSpace(d FS, dir string, needed int64, write func() error) error {
	free, err := d.Free(dir)
	if err != nil {
		return err
	}
	if free < needed {
		return &SpaceError{dir, needed, free}
	}
	err = write()
	if err == nil || !NoSpace(err) {
		return err
	}
	left, freeErr := d.Free(dir)
	if freeErr != nil {
		return fmt.Errorf("%w (and %v)", err, freeErr)
	}
	return fmt.Errorf("%w (%v)", &SpaceError{dir, needed, left}, err)
}

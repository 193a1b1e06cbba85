package tensorfile

import (
	"errors"
	"fmt"
	"io/fs"
)

// MissingPart adds to the error of opening a part of a model, that an index names, what to do where the part is not there.
func MissingPart(index string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: %s names it, so fetch or copy the missing file", err, index)
}

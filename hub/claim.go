package hub

import (
	"context"
	"errors"
	"time"

	"spillway/internal/vfs"
)

// claim takes the lock of a blob. Another process that has it fetches the same bytes, so it
// is waited for.
func claim(ctx context.Context, path string) (release func() error, err error) {
	for {
		release, err := vfs.Claim(path)
		var held *vfs.HeldError
		if !errors.As(err, &held) {
			return release, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
